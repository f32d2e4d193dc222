-- The zero of times that queries and `analyze trace` share.

-- @table run_zeros  a row is a run.
-- @columns run_id
-- @column zero_ns ns              Time of its first event on any rank: time 0 of a trace that `analyze trace` writes.
CREATE TABLE run_zeros AS
WITH _first AS (
    SELECT run_id, min(start_ns) AS start_ns FROM kernels GROUP BY run_id
    UNION ALL
    SELECT run_id, min(start_ns) FROM memcpys GROUP BY run_id
    UNION ALL
    SELECT run_id, min(start_ns) FROM memsets GROUP BY run_id
    UNION ALL
    SELECT run_id, min(start_ns) FROM cuda_calls GROUP BY run_id
    UNION ALL
    SELECT run_id, min(start_ns) FROM cpu_ops GROUP BY run_id
    UNION ALL
    SELECT run_id, min(start_ns) FROM ranges GROUP BY run_id
    UNION ALL
    -- Other memory events are allocations by the driver, some at time 0.
    SELECT run_id, min(start_ns) FROM memory_events WHERE allocated_bytes IS NOT NULL GROUP BY run_id
),
_recorded AS (
    SELECT run_id, min(start_ns) AS zero_ns FROM _first GROUP BY run_id
)
FROM _recorded
UNION ALL
-- The history of a memory snapshot, and a log of torch.compile, begin long before a recording.
SELECT run_id, min(start_ns)
FROM (
    SELECT run_id, start_ns FROM allocator_events
    UNION ALL
    SELECT run_id, start_ns FROM compilations
    UNION ALL
    SELECT run_id, start_ns FROM compile_phases
) ANTI JOIN _recorded USING (run_id)
GROUP BY run_id;
