-- The caching allocator's memory: events that say how much is allocated, as torch.profiler writes them with
-- profile_memory. (What Nsight Systems sees are driver allocations, with reserved_bytes alone.)
-- @use intervals, phases
-- @view memory_pools  a row is a device of a process with such events.
-- @column pool index            Its number.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device_type text      cpu, cuda, hip or xpu.
-- @column device index          Device; -1 for the CPU.
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
-- @column pool index            The pool.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column event index           Its number in the pool, from 1: by time, those of one time (whole us) as in the trace.
-- @column start_ns ns           Start.
-- @column addr id               Address.
-- @column bytes B               What was allocated; negative for a free.
-- @column allocated_bytes B     Allocated after the event.
-- @column reserved_bytes B      Reserved after the event.
CREATE VIEW memory_changes AS
SELECT
    p.pool, p.run_id, p.rank, row_number() OVER (PARTITION BY p.pool ORDER BY e.start_ns, e.file_row) AS event,
    e.start_ns, e.addr, e.bytes, e.allocated_bytes, e.reserved_bytes
FROM memory_events e
JOIN memory_pools p ON p.run_id = e.run_id AND p.rank = e.rank AND p.device_type IS NOT DISTINCT FROM e.device_type
    AND p.device IS NOT DISTINCT FROM e.device
WHERE e.allocated_bytes IS NOT NULL;

-- @view memory_peaks  a row is a pool.
-- @column pool index            The pool.
-- @column first_ns ns           First event.
-- @column last_ns ns            Last event.
-- @column peak_bytes B          Most that was allocated.
-- @column peak_event index      The first event after which it was; 0 where only before the first one.
-- @column first_bytes B         Allocated before the first event.
-- @column last_bytes B          Allocated after the last.
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

-- @view memory_phases  a row is such an event with its phase.
-- The innermost of any thread's, since an event does not name its thread.
-- @column * of memory_changes
-- @column phase text            Phase of the training step; NULL outside of all.
-- @column phase_end_ns ns       End of that range, of which others may lie inside.
CREATE VIEW memory_phases AS
WITH _points AS (
    SELECT c.*, c.start_ns AS at_ns, t.track
    FROM memory_changes c LEFT JOIN (SELECT * FROM phase_tracks WHERE tid IS NULL) t USING (run_id, rank)
),
_placed AS (
    SELECT * EXCLUDE (at_ns, track, inside), inside.phase AS phase FROM points_in_ranges('_points', 'phase_stretches')
),
_phase_ends AS (
    SELECT run_id, rank, phase, start_ns, start_ns + dur_ns AS end_ns FROM phase_ranges
)
SELECT p.*, e.end_ns AS phase_end_ns
FROM _placed p
ASOF LEFT JOIN _phase_ends e
    ON e.run_id = p.run_id AND e.rank = p.rank AND e.phase = p.phase AND p.start_ns >= e.start_ns;

-- @view memory_blocks  a row is an allocation of the trace.
-- An address is free before it is given away again, so the next event at it is the one that frees it.
-- @column pool index            The pool.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column event index           The event that made it.
-- @column start_ns ns           Start.
-- @column freed_event index     The event that freed it; NULL where none did.
-- @column freed_ns ns           When.
-- @column addr id               Address.
-- @column bytes B               Size.
-- @column phase text            Phase that it was made in; NULL outside of all.
-- @column phase_end_ns ns       End of that range.
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

-- @macro is_live(event, freed_event, at_event)  whether a block is there after an event: from its allocation on, and no
-- longer when it is freed.
CREATE MACRO is_live(event, freed_event, at_event) AS event <= at_event AND coalesce(freed_event > at_event, true);
