-- Which call launched GPU work: the runtime's, where a driver call runs inside it under the same id. CUPTI gives every
-- call of an API an id of its own, so nothing need be grouped. But it counts within a process: where a rank holds
-- several (traces that somebody merged), an id that more than one of them used is nobody's.
-- @keep launch_calls
-- @once ranks_of_processes, shared_correlation_ids
-- @empty shared_correlation_ids with ranks_of_processes
-- @view ranks_of_processes  a row is a rank that holds several processes with CUDA calls.
-- @column run_id id             The run.
-- @column rank index            Process rank.
CREATE VIEW ranks_of_processes AS
SELECT run_id, rank FROM cuda_calls GROUP BY run_id, rank HAVING min(pid) <> max(pid);

-- @view shared_correlation_ids  a row is an id that several processes of a rank used.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column correlation_id id     Joins a CUDA call and the GPU work that it launched.
CREATE VIEW shared_correlation_ids AS
SELECT run_id, rank, correlation_id
FROM cuda_calls SEMI JOIN ranks_of_processes USING (run_id, rank)
WHERE correlation_id IS NOT NULL
GROUP BY run_id, rank, correlation_id
HAVING min(pid) <> max(pid);

-- @macro calls_that_launch(calls)  the call of each correlation id among those of a table like cuda_calls, or a part of
-- it.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column correlation_id id     Joins a CUDA call and the GPU work that it launched.
-- @column tid id                Thread.
-- @column name text             Runtime or driver function.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE MACRO calls_that_launch(calls) AS TABLE
WITH _driver AS (
    SELECT * FROM query_table(calls) WHERE api = 'driver' AND correlation_id IS NOT NULL
),
-- Driver calls are few: of the runtime's, only those that hold one are kept in memory.
_holding AS (
    SELECT run_id, rank, correlation_id
    FROM query_table(calls) SEMI JOIN _driver USING (run_id, rank, correlation_id)
    WHERE api = 'runtime'
)
SELECT *
FROM (
    SELECT run_id, rank, run_group, correlation_id, tid, name, start_ns, dur_ns
    FROM query_table(calls)
    WHERE api = 'runtime' AND correlation_id IS NOT NULL
    UNION ALL
    SELECT run_id, rank, run_group, correlation_id, tid, name, start_ns, dur_ns
    FROM _driver ANTI JOIN _holding USING (run_id, rank, correlation_id)
)
ANTI JOIN shared_correlation_ids USING (run_id, rank, correlation_id);

-- @view launch_calls  a row is the call of a correlation id.
-- @column * of calls_that_launch
CREATE VIEW launch_calls AS SELECT * FROM calls_that_launch('cuda_calls');
