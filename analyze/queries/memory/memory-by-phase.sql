-- How much memory does each phase of the training step allocate, and which phase has the peak?
--
-- From the allocator events of the trace (torch.profiler with profile_memory). A block belongs to the innermost phase
-- in which it was allocated, on any thread. live_at_peak_bytes are the blocks of a phase that are alive at the peak of
-- the device. They add up to that peak exactly, with (before the trace) for blocks allocated earlier: parameters,
-- optimizer state and the like. Phases as in `phases`; (outside) is in no phase.
-- @param device_type all|gpu|cuda|hip|xpu|cpu = all   Which allocator; cuda includes AMD's GPUs, as in torch.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device_type text        cpu, cuda, hip or xpu.
-- @column device index            Device; -1 for the CPU.
-- @column phase text              Phase of the training step.
-- @column allocations count       Blocks allocated in it.
-- @column allocated_bytes B       Their sizes.
-- @column freed_bytes B           Freed while it ran, whichever phase allocated it.
-- @column net_bytes B             allocated_bytes - freed_bytes: growth over all its ranges.
-- @column survived_bytes B        Allocated in it and alive when its range ends.
-- @column peak_bytes B            Peak of the device while it ran.
-- @column live_at_peak_bytes B    Its blocks alive at the peak of the device.
-- @column peak_pct %              Their share of the peak.
-- @main run_id, rank, device_type, device, phase, allocated_bytes, net_bytes, peak_bytes, live_at_peak_bytes
-- @order run_id, rank, device_type DESC, device, first_ns, phase
-- @use arithmetic, memory, phases
-- @needs allocator events (profile_memory=True)
-- @plot bars y=run_id,rank,device_type,device x=live_at_peak_bytes parts=phase
-- @drill rank memory-timeline rank={rank} device={device}
WITH starts AS (
    -- Starts of phases, and where a phase continues after a nested one.
    SELECT run_id, rank, phase, start_ns FROM phase_ranges
    UNION
    SELECT t.run_id, t.rank, s.phase, s.start_ns
    FROM phase_segments s JOIN phase_tracks t USING (track)
    WHERE t.tid IS NULL
),
starts_of AS (
    SELECT p.pool, s.phase, s.start_ns FROM starts s JOIN memory_pools p USING (run_id, rank)
),
last_changes AS (
    SELECT pool, start_ns, arg_max(allocated_bytes, event) AS allocated_bytes
    FROM memory_changes
    GROUP BY pool, start_ns
),
-- Memory allocated at the start of a phase counts for its peak.
entries AS (
    SELECT r.pool, r.phase, r.start_ns, coalesce(c.allocated_bytes, k.first_bytes) AS allocated_bytes
    FROM starts_of r
    ASOF LEFT JOIN last_changes c ON c.pool = r.pool AND r.start_ns > c.start_ns
    JOIN memory_peaks k ON k.pool = r.pool
),
in_phases AS (
    SELECT pool, start_ns, bytes, allocated_bytes, coalesce(phase, '(outside)') AS phase FROM memory_phases
),
sums AS (
    SELECT
        pool, phase, count(*) FILTER (bytes > 0) AS allocations,
        coalesce(sum(bytes) FILTER (bytes > 0), 0)::BIGINT AS allocated_bytes,
        coalesce(-sum(bytes) FILTER (bytes < 0), 0)::BIGINT AS freed_bytes,
        coalesce(sum(bytes), 0)::BIGINT AS net_bytes, max(most_bytes) AS peak_bytes, min(start_ns) AS first_ns
    FROM (
        SELECT pool, phase, start_ns, bytes, allocated_bytes AS most_bytes FROM in_phases
        UNION ALL
        SELECT pool, phase, start_ns, NULL, allocated_bytes FROM entries
    )
    GROUP BY pool, phase
),
by_owner AS (
    SELECT
        pool, coalesce(phase, '(outside)') AS phase,
        coalesce(sum(bytes) FILTER (
            phase IS NOT NULL AND coalesce(freed_ns >= phase_end_ns, true)
        ), 0)::BIGINT AS survived_bytes,
        coalesce(sum(bytes) FILTER (is_live(event, freed_event, peak_event)), 0)::BIGINT AS live_at_peak_bytes
    FROM memory_blocks JOIN memory_peaks USING (pool)
    GROUP BY ALL
),
rows AS (
    SELECT
        pool, phase, allocations, allocated_bytes, freed_bytes, net_bytes,
        CASE WHEN phase <> '(outside)' THEN coalesce(survived_bytes, 0) END AS survived_bytes,
        peak_bytes, coalesce(live_at_peak_bytes, 0) AS live_at_peak_bytes, first_ns
    FROM sums LEFT JOIN by_owner USING (pool, phase)
    UNION ALL
    SELECT
        pool, '(before the trace)', 0, 0, 0, 0, NULL, NULL,
        k.peak_bytes - coalesce((SELECT sum(live_at_peak_bytes) FROM by_owner o WHERE o.pool = k.pool), 0)::BIGINT, -1
    FROM memory_peaks k
)
SELECT
    p.* EXCLUDE (pool), r.* EXCLUDE (pool), pct(live_at_peak_bytes, k.peak_bytes) AS peak_pct
FROM rows r JOIN memory_pools p USING (pool) JOIN memory_peaks k USING (pool)
WHERE is_allocator('{device_type}', device_type)
