-- @use profiler_overhead
-- What a recording says about its own cost, per rank: whether Python functions were recorded (python_stacks), and the
-- time of the profiler's own work on the CPU, summed over threads.
CREATE VIEW recording_facts AS
WITH _stacks AS (
    SELECT run_id, rank, bool_or(origin = 'python_function') AS python_stacks FROM ranges GROUP BY run_id, rank
),
_overhead AS (
    SELECT run_id, rank, sum(end_ns - start_ns)::BIGINT AS overhead_ns FROM profiler_overhead GROUP BY run_id, rank
)
SELECT
    run_id, rank, g.run_group, coalesce(python_stacks, false) AS python_stacks, coalesce(overhead_ns, 0) AS overhead_ns
FROM run_groups g LEFT JOIN _stacks USING (run_id, rank) LEFT JOIN _overhead USING (run_id, rank);

-- What to bear in mind of host times; NULL if nothing.
CREATE MACRO host_time_note(python_stacks) AS
    CASE WHEN python_stacks THEN 'recorded with Python stacks, which make host time longer' END;
