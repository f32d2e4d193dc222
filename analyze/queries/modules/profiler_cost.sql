-- Profiler overhead: what recording adds to the time of the program.

-- @view recording_facts  a row is a rank, and whether Python functions were recorded.
-- @columns run_id, rank, run_group
-- @column python_stacks bool      Whether Python functions were recorded.
CREATE VIEW recording_facts AS
WITH _stacks AS (
    SELECT run_id, rank, bool_or(origin = 'python_function') AS python_stacks FROM ranges GROUP BY run_id, rank
)
SELECT run_id, rank, g.run_group, coalesce(python_stacks, false) AS python_stacks
FROM run_groups g LEFT JOIN _stacks USING (run_id, rank);

-- @view step_costs  a row is a rank that a profiler recorded and whose steps the collector timed: mean recorded step /
--   mean undisturbed step.
-- Undisturbed steps ran in the same process before the profiler started; without any, they are the steps of the rank in
-- a selected pass of the workload without a profiler.
-- @columns run_id, rank, run_group
-- @column recorded_step_ns ns     Mean of the recorded steps.
-- @column undisturbed_step_ns ns  Mean of the undisturbed steps; NULL without any.
-- @column slowdown x              recorded_step_ns / undisturbed_step_ns.
CREATE VIEW step_costs AS
WITH _means AS (
    SELECT
        run_id, rank, run_group,
        avg(round(step_s * 1e9)::BIGINT) FILTER (NOT coalesce(warmup, false)) AS recorded,
        avg(round(step_s * 1e9)::BIGINT) FILTER (undisturbed) AS undisturbed
    FROM step_metrics
    GROUP BY run_id, rank, run_group
),
_passes AS (
    SELECT m.*, r.workload_id, r.profiler = 'none' AS alone
    FROM _means m JOIN (SELECT run_id, workload_id, profiler FROM runs) r USING (run_id)
),
_compared AS (
    SELECT p.*, coalesce(p.undisturbed, n.recorded) AS undisturbed_ns
    FROM _passes p
    LEFT JOIN (SELECT workload_id, rank, any_value(recorded) AS recorded FROM _passes WHERE alone GROUP BY ALL) n
        ON n.workload_id = p.workload_id AND n.rank = p.rank AND NOT p.alone
)
SELECT
    run_id, rank, run_group, round(recorded)::BIGINT AS recorded_step_ns,
    round(undisturbed_ns)::BIGINT AS undisturbed_step_ns,
    recorded / nullif(undisturbed_ns, 0) AS slowdown
FROM _compared
WHERE recorded IS NOT NULL AND NOT alone;

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
