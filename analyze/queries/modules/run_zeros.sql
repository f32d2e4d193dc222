-- The zero of times that queries and `analyze trace` share.

-- @table run_zeros  a row is a run.
-- @columns run_id
-- @column zero_ns ns              Time of its first event on any rank: time 0 of a trace that `analyze trace` writes.
CREATE TABLE run_zeros AS
WITH _recorded AS (
    SELECT run_id, min(start_ns) AS zero_ns FROM first_events GROUP BY run_id
)
FROM _recorded
UNION ALL
-- The history of a memory snapshot, a log of torch.compile and a dump of the flight recorder begin long before a
-- recording. A recording may have calls of the operating system alone.
SELECT run_id, min(start_ns)
FROM (
    SELECT run_id, start_ns FROM allocator_events
    UNION ALL
    SELECT run_id, start_ns FROM compilations
    UNION ALL
    SELECT run_id, start_ns FROM compile_phases
    UNION ALL
    SELECT run_id, created_ns FROM flight_records
    UNION ALL
    SELECT run_id, start_ns FROM os_calls
) ANTI JOIN _recorded USING (run_id)
GROUP BY run_id;
