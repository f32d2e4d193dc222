-- Which call launched GPU work: the runtime's, where a driver call runs inside it under the same id. CUPTI gives every
-- call of an API an id of its own, above 0, so nothing need be grouped. But ids count within a process, and a damaged
-- or merged trace has some again: an id that several processes of a rank used is nobody's, nor is one that several
-- calls have. One call that was written several times is one.
-- @keep launch_calls
-- @once repeated_id_blocks, repeated_correlation_ids
-- @view repeated_id_blocks  a row is 2048 neighbouring correlation ids of a rank of which an API used one twice, or
-- several processes used any.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column id_block index        Their number: correlation_id >> 11.
CREATE VIEW repeated_id_blocks AS
-- A bit for each id of either API, and fewer bits than calls where one was there before: to group all calls by their
-- ids takes 20 times as long.
SELECT run_id, rank, correlation_id >> 11 AS id_block
FROM cuda_calls
WHERE api <> 'sync' AND correlation_id > 0
GROUP BY run_id, rank, id_block
HAVING min(pid) <> max(pid)
    OR count(*) > bit_count(bitstring_agg(
        ((correlation_id & 2047) * 2 + (api = 'driver')::BIGINT)::SMALLINT, 0::SMALLINT, 4095::SMALLINT
    ));

-- @view repeated_correlation_ids  a row is an id that several processes of a rank used, or several rows of the API
-- whose call it is. Where these rows are one call, of the same start, thread and name, it is here; else the id is
-- nobody's.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column correlation_id id     Joins a CUDA call and the GPU work that it launched.
-- @column is_call bool          Whether these rows are one call.
-- @column tid id                Thread.
-- @column name text             Runtime or driver function.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length; the longest that was written.
CREATE VIEW repeated_correlation_ids AS
WITH _calls AS (
    SELECT
        run_id, rank, run_group, correlation_id, api = 'runtime' AS in_runtime, pid, dur_ns,
        {'start_ns': start_ns, 'tid': tid, 'name': name} AS call
    FROM (SELECT *, correlation_id >> 11 AS id_block FROM cuda_calls WHERE api <> 'sync' AND correlation_id > 0)
    SEMI JOIN repeated_id_blocks USING (run_id, rank, id_block)
),
_of_apis AS (
    SELECT
        run_id, rank, run_group, correlation_id, in_runtime, count(*) AS n, min(pid) AS first_pid,
        max(pid) AS last_pid, min(call) AS call, min(call) IS NOT DISTINCT FROM max(call) AS alike,
        max(dur_ns) AS dur_ns
    FROM _calls
    GROUP BY run_id, rank, run_group, correlation_id, in_runtime
),
_of_ids AS (
    SELECT
        run_id, rank, run_group, correlation_id, min(first_pid) <> max(last_pid) IS TRUE AS of_processes,
        arg_max({'n': n, 'alike': alike, 'call': call, 'dur_ns': dur_ns}, in_runtime) AS of_api
    FROM _of_apis
    GROUP BY run_id, rank, run_group, correlation_id
)
SELECT
    run_id, rank, run_group, correlation_id, of_api.alike AND NOT of_processes AS is_call, of_api.call.tid AS tid,
    of_api.call.name AS name, of_api.call.start_ns AS start_ns, of_api.dur_ns AS dur_ns
FROM _of_ids
WHERE of_processes OR of_api.n > 1;

-- @macro calls_that_launch(calls)  the call of each correlation id among those of a table like cuda_calls, or a part of
-- it; calls that were written several times are there of the whole.
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
    SELECT * FROM query_table(calls) WHERE api = 'driver' AND correlation_id > 0
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
    WHERE api = 'runtime' AND correlation_id > 0
    UNION ALL
    SELECT run_id, rank, run_group, correlation_id, tid, name, start_ns, dur_ns
    FROM _driver ANTI JOIN _holding USING (run_id, rank, correlation_id)
)
ANTI JOIN repeated_correlation_ids USING (run_id, rank, correlation_id)
UNION ALL
SELECT run_id, rank, run_group, correlation_id, tid, name, start_ns, dur_ns
FROM repeated_correlation_ids
WHERE is_call;

-- @view launch_calls  a row is the call of a correlation id.
-- @column * of calls_that_launch
CREATE VIEW launch_calls AS SELECT * FROM calls_that_launch('cuda_calls');
