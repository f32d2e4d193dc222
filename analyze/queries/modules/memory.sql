-- The caching allocator's memory, from the events of torch.profiler (profile_memory). Nsight Systems records driver
-- allocations, with reserved_bytes alone.
-- @use intervals, phases

-- @macro is_allocator(chosen, device_type)  whether a device type belongs to the chosen allocator: all, cpu, gpu (all
--   but cpu), cuda (includes hip, as in torch), hip or xpu.
CREATE MACRO is_allocator(chosen, device_type) AS CASE chosen
    WHEN 'all' THEN true
    WHEN 'gpu' THEN device_type NOT IN ('cpu', 'mkldnn')
    WHEN 'cuda' THEN device_type IN ('cuda', 'hip')
    ELSE device_type = chosen
END;

-- @view memory_pools  a row is a device of a process with allocator events.
-- @column pool index              Its number.
-- @columns run_group, run_id, rank
-- @column device_type text        cpu, cuda, hip or xpu.
-- @column device index            Device; -1 for the CPU.
CREATE VIEW memory_pools AS
SELECT
    row_number() OVER (ORDER BY run_id, rank, device_type, device)::INTEGER AS pool,
    run_group, run_id, rank, device_type, device
FROM (
    SELECT DISTINCT run_group, run_id, rank, device_type, device
    FROM memory_events
    WHERE allocated_bytes IS NOT NULL
);

-- @view memory_changes  a row is an event of the caching allocator.
-- @column pool index              The pool.
-- @columns run_id, rank
-- @column event index             Number in the pool, from 1: by time, then in the order of the trace.
-- @columns start_ns
-- @column addr id                 Address.
-- @column bytes B                 Allocated bytes; negative for a free.
-- @column allocated_bytes B       Allocated after the event.
-- @column reserved_bytes B        Reserved after the event.
CREATE VIEW memory_changes AS
SELECT
    p.pool, p.run_id, p.rank, row_number() OVER (PARTITION BY p.pool ORDER BY e.start_ns, e.file_row) AS event,
    e.start_ns, e.addr, e.bytes, e.allocated_bytes, e.reserved_bytes
FROM memory_events e
JOIN memory_pools p ON p.run_id = e.run_id AND p.rank = e.rank AND p.device_type IS NOT DISTINCT FROM e.device_type
    AND p.device IS NOT DISTINCT FROM e.device
WHERE e.allocated_bytes IS NOT NULL;

-- @view memory_peaks  a row is a pool.
-- @column pool index              The pool.
-- @column first_ns ns             First event.
-- @column last_ns ns              Last event.
-- @column peak_bytes B            Peak of allocated bytes.
-- @column peak_event index        First event with that peak; 0 if it was before the first event.
-- @column first_bytes B           Allocated before the first event.
-- @column last_bytes B            Allocated after the last.
CREATE VIEW memory_peaks AS
WITH _sums AS (
    SELECT
        pool, min(start_ns) AS first_ns, max(start_ns) AS last_ns, max(allocated_bytes) AS most_bytes,
        arg_min(event, (-allocated_bytes, event)) AS most_event,
        arg_min(allocated_bytes - bytes, event) AS first_bytes, arg_max(allocated_bytes, event) AS last_bytes
    FROM memory_changes
    GROUP BY pool
)
SELECT
    pool, first_ns, last_ns, greatest(most_bytes, first_bytes) AS peak_bytes,
    CASE WHEN first_bytes > most_bytes THEN 0 ELSE most_event END AS peak_event, first_bytes, last_bytes
FROM _sums;

-- @view memory_phases  a row is an allocator event with its phase: the innermost of any thread, since events do not
--   name their thread.
-- @column * of memory_changes
-- @column phase text              Phase of the training step; NULL for none.
-- @column phase_end_ns ns         End of that range.
CREATE VIEW memory_phases AS
WITH _points AS (
    SELECT c.*, c.start_ns AS at_ns, t.track
    FROM memory_changes c LEFT JOIN (SELECT * FROM phase_tracks WHERE tid IS NULL) t USING (run_id, rank)
),
_placed AS (
    SELECT * EXCLUDE (at_ns, track, inside), inside.phase AS phase FROM points_in_intervals('_points', 'phase_segments')
),
_phase_ends AS (
    SELECT run_id, rank, phase, start_ns, start_ns + dur_ns AS end_ns FROM phase_ranges
)
SELECT p.*, e.end_ns AS phase_end_ns
FROM _placed p
ASOF LEFT JOIN _phase_ends e
    ON e.run_id = p.run_id AND e.rank = p.rank AND e.phase = p.phase AND p.start_ns >= e.start_ns;

-- @view memory_blocks  a row is an allocation.
-- An address is freed before it is allocated again: the next event with the address frees the block.
-- @column pool index              The pool.
-- @columns run_id, rank
-- @column event index             The event that allocated it.
-- @columns start_ns
-- @column freed_event index       The event that freed it; NULL if none did.
-- @column freed_ns ns             Time of that event.
-- @column addr id                 Address.
-- @column bytes B                 Size.
-- @column phase text              Phase in which it was allocated; NULL for none.
-- @column phase_end_ns ns         End of that range.
CREATE VIEW memory_blocks AS
WITH _paired AS (
    SELECT
        pool, run_id, rank, event, start_ns, addr, bytes, phase, phase_end_ns,
        CASE WHEN lead(bytes) OVER at_address < 0 THEN lead(event) OVER at_address END AS freed_event,
        CASE WHEN lead(bytes) OVER at_address < 0 THEN lead(start_ns) OVER at_address END AS freed_ns
    FROM memory_phases
    WINDOW at_address AS (PARTITION BY pool, addr ORDER BY event)
)
SELECT pool, run_id, rank, event, start_ns, freed_event, freed_ns, addr, bytes, phase, phase_end_ns
FROM _paired
WHERE bytes > 0;

-- @macro is_live(event, freed_event, at_event)  whether a block is alive after an event: half-open [allocation, free).
CREATE MACRO is_live(event, freed_event, at_event) AS event <= at_event AND coalesce(freed_event > at_event, true);
