-- What recording adds to the time of the program.

-- @view recording_facts  a row is a rank, and whether Python functions were recorded.
-- @columns run_id, rank, run_group
-- @column python_stacks bool      Whether Python functions were recorded.
CREATE VIEW recording_facts AS
WITH _stacks AS (
    SELECT run_id, rank, bool_or(origin = 'python_function') AS python_stacks FROM ranges GROUP BY run_id, rank
)
SELECT run_id, rank, g.run_group, coalesce(python_stacks, false) AS python_stacks
FROM run_groups g LEFT JOIN _stacks USING (run_id, rank);

-- @view empty_queue_launches  a row is a rank with work whose launch calls are known: how much of it found the queue
--   empty (estimate).
-- Work that starts within 20 us after its launch call returned had nothing to wait for: the CPU is the limit, and what
-- the profiler does on it makes the program slower.
-- @columns run_id, rank
-- @column launched count          Work whose launch call is known.
-- @column empty count             Work that started within 20 us after that call.
CREATE VIEW empty_queue_launches AS
SELECT
    run_id, rank, count(*) AS launched,
    count(*) FILTER (start_ns - call_start_ns - coalesce(call_dur_ns, 0) < 20000) AS empty
FROM gpu_work
WHERE call_start_ns IS NOT NULL
GROUP BY run_id, rank;

-- @macro host_time_note(python_stacks)  what inflates host times; NULL for nothing.
CREATE MACRO host_time_note(python_stacks) AS
    CASE WHEN python_stacks THEN 'recorded with Python stacks, which make host time longer' END;
