-- What is the memory used for: activations, gradients, optimizer state, inputs, temporaries?
--
-- Allocator events do not say what a block is for: a category is what the phase and the lifetime of the block prove,
-- else unknown. From torch.profiler's memory events (profile_memory) and the phases of `phases`:
-- input: allocated in data or h2d.
-- temporary: allocated in forward, loss, backward or optimizer, and freed before that range ends.
-- activation: allocated in forward or loss, alive at the end of the range, freed before the second next range of that
--   phase begins.
-- gradient: allocated in backward, alive at the end of the range, freed before the second next range of that phase
--   begins.
-- optimizer_state: allocated in optimizer, alive at the end of the range, and not freed in the trace.
-- before_trace: allocated before the first event: parameters, older optimizer state and others; events do not tell them
--   apart.
-- unknown: all other blocks; for example, one that outlives two more ranges of its phase and is not freed in the trace.
-- With group=operator, a block belongs to the outermost operator that runs when it is allocated; to unknown if there is
-- none, or if several threads run one, since an event does not name its thread. live_at_peak_bytes adds up to the
-- device's peak exactly.
-- @param group category|operator = category   What a row is.
-- @param device_type all|gpu|cuda|hip|xpu|cpu = all   Which allocator; cuda includes AMD's GPUs, as in torch.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device_type text        cpu, cuda, hip or xpu.
-- @column device index            Device; -1 for the CPU.
-- @column {group} text            Category, or operator.
-- @column allocations count       Blocks allocated in the trace.
-- @column allocated_bytes B       Their sizes.
-- @column live_at_peak_bytes B    Those alive at the peak of the device.
-- @column peak_pct %              Their share of that peak.
-- @column live_at_end_bytes B     Those alive after the last event.
-- @main run_id, rank, device_type, device, {group}, allocations, allocated_bytes, live_at_peak_bytes, peak_pct
-- @order run_id, rank, device_type DESC, device, live_at_peak_bytes DESC, allocated_bytes DESC, {group}
-- @use arithmetic, intervals, memory, phases
-- @needs allocator events (profile_memory=True)
-- @plot bars y=run_id,rank,device_type,device x=live_at_peak_bytes parts={group}
-- @drill category memory-by-category group=operator rank={rank} device_type={device_type}
WITH next_ranges AS (
    SELECT
        run_id, rank, phase, start_ns,
        lead(start_ns, 2) OVER (PARTITION BY run_id, rank, phase ORDER BY start_ns) AS after_next_ns
    FROM phase_ranges
),
lives AS (
    SELECT b.*, n.after_next_ns, coalesce(freed_ns < b.phase_end_ns, false) AS inside
    FROM memory_blocks b
    ASOF LEFT JOIN next_ranges n
        ON n.run_id = b.run_id AND n.rank = b.rank AND n.phase = b.phase AND b.start_ns >= n.start_ns
),
classified AS (
    SELECT
        pool, run_id, rank, event, start_ns, freed_event, bytes,
        CASE
            WHEN phase IN ('data', 'h2d') THEN 'input'
            WHEN inside AND phase IS NOT NULL THEN 'temporary'
            WHEN phase = 'optimizer' THEN CASE WHEN freed_ns IS NULL THEN 'optimizer_state' ELSE 'unknown' END
            WHEN after_next_ns IS NOT NULL AND coalesce(freed_ns > after_next_ns, true) THEN 'unknown'
            WHEN phase IN ('forward', 'loss') THEN 'activation'
            WHEN phase = 'backward' THEN 'gradient'
            ELSE 'unknown'
        END AS category
    FROM lives
),
outer_ops AS (
    SELECT run_id, rank, tid, name, start_ns, start_ns + dur_ns AS end_ns
    FROM call_tree
    WHERE kind = 'op' AND '{group}' = 'operator'
    QUALIFY coalesce(start_ns >= previous_end((run_id, rank, tid), start_ns, start_ns + dur_ns), true)
),
-- The event does not name its thread: look up the operator of every thread.
candidates AS (
    SELECT c.*, t.tid
    FROM classified c LEFT JOIN (SELECT DISTINCT run_id, rank, tid FROM outer_ops) t USING (run_id, rank)
    WHERE '{group}' = 'operator'
),
running AS (
    SELECT a.pool, a.start_ns, CASE WHEN a.start_ns < o.end_ns THEN o.name END AS name
    FROM candidates a ASOF LEFT JOIN outer_ops o
        ON o.run_id = a.run_id AND o.rank = a.rank AND o.tid = a.tid AND a.start_ns >= o.start_ns
),
owners AS (
    SELECT pool, start_ns, CASE WHEN count(DISTINCT name) = 1 THEN any_value(name) END AS operator
    FROM running
    GROUP BY pool, start_ns
),
named AS (
    SELECT c.* EXCLUDE (category), category, coalesce(o.operator, 'unknown') AS operator
    FROM classified c LEFT JOIN owners o USING (pool, start_ns)
),
sums AS (
    SELECT
        pool, {group}, count(*) AS allocations, sum(bytes)::BIGINT AS allocated_bytes,
        coalesce(sum(bytes) FILTER (is_live(event, freed_event, peak_event)), 0)::BIGINT AS live_at_peak_bytes,
        coalesce(sum(bytes) FILTER (freed_event IS NULL), 0)::BIGINT AS live_at_end_bytes
    FROM named JOIN memory_peaks USING (pool)
    GROUP BY pool, {group}
),
rows AS (
    SELECT * FROM sums
    UNION ALL
    SELECT
        pool, 'before_trace', 0, 0, k.peak_bytes - coalesce(sum(live_at_peak_bytes), 0)::BIGINT,
        k.last_bytes - coalesce(sum(live_at_end_bytes), 0)::BIGINT
    FROM memory_peaks k LEFT JOIN sums USING (pool)
    GROUP BY pool, k.peak_bytes, k.last_bytes
)
SELECT p.* EXCLUDE (pool), r.* EXCLUDE (pool), pct(live_at_peak_bytes, peak_bytes) AS peak_pct
FROM rows r JOIN memory_pools p USING (pool) JOIN memory_peaks USING (pool)
WHERE is_allocator('{device_type}', device_type)
