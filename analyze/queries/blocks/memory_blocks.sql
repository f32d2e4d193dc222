-- @use phases
-- The caching allocator's memory: events that say how much is allocated, as torch.profiler writes them with
-- profile_memory. (What Nsight Systems sees are driver allocations, with reserved_bytes alone.) `pool` numbers the
-- devices of each process.
CREATE VIEW memory_pools AS
SELECT
    row_number() OVER (ORDER BY run_id, rank, device_type, device)::INTEGER AS pool,
    run_group, run_id, rank, device_type, device
FROM (
    SELECT DISTINCT run_group, run_id, rank, device_type, device
    FROM memory_events
    WHERE allocated_bytes IS NOT NULL
);

CREATE VIEW memory_changes AS
SELECT p.pool, p.run_id, p.rank, e.start_ns, e.addr, e.bytes, e.allocated_bytes, e.reserved_bytes
FROM memory_events e
JOIN memory_pools p ON p.run_id = e.run_id AND p.rank = e.rank AND p.device_type IS NOT DISTINCT FROM e.device_type
    AND p.device IS NOT DISTINCT FROM e.device
WHERE e.allocated_bytes IS NOT NULL;

-- The moment when most was allocated (the first such), what was allocated then, before the first event and after the
-- last.
CREATE VIEW memory_peaks AS
SELECT
    pool, min(start_ns) AS first_ns, max(start_ns) AS last_ns, max(allocated_bytes) AS peak_bytes,
    arg_min(start_ns, (-allocated_bytes, start_ns)) AS peak_ns,
    arg_min(allocated_bytes - bytes, start_ns) AS first_bytes, arg_max(allocated_bytes, start_ns) AS last_bytes
FROM memory_changes
GROUP BY pool;

-- Every allocation of the trace with the event that freed it (freed_ns is NULL where none did), and the phase it was
-- made in, NULL outside of all. An address is free before it is given away again, so the next event at it is the one
-- that frees it.
CREATE VIEW memory_blocks AS
WITH paired AS (
    SELECT
        pool, run_id, rank, start_ns, addr, bytes,
        CASE WHEN lead(bytes) OVER at_address < 0 THEN lead(start_ns) OVER at_address END AS freed_ns
    FROM memory_changes
    WINDOW at_address AS (PARTITION BY pool, addr ORDER BY start_ns, bytes)
),
phase_ends AS (
    SELECT run_id, rank, phase, start_ns, start_ns + dur_ns AS end_ns FROM phase_ranges
),
latest AS (
    SELECT b.*, p.phase AS latest_phase, p.end_ns AS latest_end_ns
    FROM (SELECT * FROM paired WHERE bytes > 0) b
    ASOF LEFT JOIN phase_ends p ON p.run_id = b.run_id AND p.rank = b.rank AND b.start_ns >= p.start_ns
)
SELECT
    pool, run_id, rank, start_ns, freed_ns, addr, bytes,
    CASE WHEN start_ns < latest_end_ns THEN latest_phase END AS phase,
    CASE WHEN start_ns < latest_end_ns THEN latest_end_ns END AS phase_end_ns
FROM latest;

-- Whether a block is there at a moment: from its allocation on, and no longer when it is freed.
CREATE MACRO is_live(start_ns, freed_ns, at_ns) AS start_ns <= at_ns AND coalesce(freed_ns > at_ns, true);
