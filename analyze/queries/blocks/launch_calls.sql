-- Calls that launch GPU work. gpu_work has the launch call of each kernel, copy and fill.
-- @use api_roles
-- @macro launch_calls(t)  the launch calls of the GPU work with the correlation ids of a table `t`.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column correlation_id id     Joins the call to the GPU work that it launched.
-- @column tid id                Thread.
-- @column name text             Runtime or driver function.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE MACRO launch_calls(t) AS TABLE
SELECT DISTINCT
    run_id, rank, correlation_id, call_tid AS tid, call_name AS name, call_start_ns AS start_ns, call_dur_ns AS dur_ns
FROM gpu_work SEMI JOIN query_table(t) USING (run_id, rank, correlation_id)
WHERE call_start_ns IS NOT NULL;

-- @view launches_without_work  a row is a call that should launch a kernel or CUDA graph, without recorded GPU work.
-- The runtime's call, if a driver call inside it has its correlation id. Ids that several processes or several calls
-- used are left out.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column correlation_id id     Correlation id.
-- @column tid id                Thread.
-- @column name text             Runtime or driver function.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE VIEW launches_without_work AS
WITH _launch_names AS (
    SELECT name FROM api_roles WHERE role = 'launch'
),
_ids AS (
    SELECT run_id, rank, correlation_id
    FROM cuda_calls SEMI JOIN _launch_names USING (name) ANTI JOIN gpu_work USING (run_id, rank, correlation_id)
    WHERE api <> 'sync' AND correlation_id > 0
),
-- A call that the file has several times is one.
_calls AS (
    SELECT
        run_id, rank, run_group, correlation_id, api, tid, name, start_ns, max(dur_ns) AS dur_ns, min(pid) AS first_pid,
        max(pid) AS last_pid
    FROM cuda_calls SEMI JOIN _ids USING (run_id, rank, correlation_id)
    WHERE api <> 'sync'
    GROUP BY run_id, rank, run_group, correlation_id, api, tid, name, start_ns
),
_chosen AS (
    SELECT *
    FROM _calls
    WINDOW ids AS (PARTITION BY run_id, rank, run_group, correlation_id)
    QUALIFY api = max(api) OVER ids AND min(first_pid) OVER ids IS NOT DISTINCT FROM max(last_pid) OVER ids
        AND count(*) OVER (PARTITION BY run_id, rank, run_group, correlation_id, api) = 1
)
SELECT run_id, rank, run_group, correlation_id, tid, name, start_ns, dur_ns
FROM _chosen SEMI JOIN _launch_names USING (name);
