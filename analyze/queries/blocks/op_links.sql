-- Which operator made a CUDA call and launched GPU work. Kineto writes the operator's number beside both (External id),
-- but until February 2024 (torch 1.12 to 2.2) it wrote the correlation id there, which names another operator or none.
-- A file is of that kind where no External id of a call or of GPU work is anything else: a single one may be both by
-- chance, and then the enclosing operator is the same. Without calls there is nothing to enclose, and it takes more of
-- them to be sure.
-- @use cpu_events, gpu_work, innermost, intervals, launch_calls
-- @once enclosing_ops, ranks_without_op_ids
-- @empty enclosing_ops with ranks_without_op_ids
-- @view ranks_without_op_ids  a row is a rank whose file has the correlation id for External id.
-- @column run_id id             The run.
-- @column rank index            Process rank.
CREATE VIEW ranks_without_op_ids AS
-- GPU work alone says it of most that they are not: their calls, which are many more, need not be looked at.
WITH _others AS (
    SELECT DISTINCT run_id, rank FROM gpu_work WHERE op_id > 0 AND op_id <> correlation_id
),
_left AS (
    SELECT DISTINCT run_id, rank FROM run_groups ANTI JOIN _others USING (run_id, rank)
)
SELECT run_id, rank
FROM (
    SELECT run_id, rank, correlation_id, op_id, true AS is_call FROM cuda_calls WHERE api <> 'sync'
    UNION ALL
    SELECT run_id, rank, correlation_id, op_id, false FROM gpu_work
)
SEMI JOIN _left USING (run_id, rank)
WHERE op_id > 0
GROUP BY run_id, rank
HAVING bool_and(op_id = correlation_id) AND (bool_or(is_call) OR count(*) >= 16);

-- @view enclosing_ops  a row is a CUDA call of such a rank inside an operator or range.
-- A track is a struct: such files are few.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column correlation_id id     Joins a CUDA call and the GPU work that it launched.
-- @column op_id id              The innermost of them on the thread when the call begins.
CREATE VIEW enclosing_ops AS
WITH _ops AS (
    SELECT {'run_id': run_id, 'rank': rank, 'tid': tid} AS track, op_id AS name, start_ns, start_ns + dur_ns AS end_ns
    FROM cpu_events SEMI JOIN ranks_without_op_ids USING (run_id, rank)
    WHERE kind IN ('op', 'range') AND op_id > 0
),
_calls AS (
    SELECT run_id, rank, correlation_id, {'run_id': run_id, 'rank': rank, 'tid': tid} AS track, start_ns AS at_ns
    FROM launch_calls SEMI JOIN ranks_without_op_ids USING (run_id, rank)
),
_busy AS (
    SELECT * FROM innermost('_ops')
)
SELECT run_id, rank, correlation_id, inside.name AS op_id
FROM points_in_ranges('_calls', '_busy')
WHERE inside IS NOT NULL;

-- @macro linked_to_ops(t)  a table with run_id, rank, correlation_id and op_id, such as gpu_work or cuda_calls, with
-- op_id that of the operator in all files.
-- NULL where no operator is known. Whatever joins GPU work or calls to operators reads it through this.
-- @column * of t
CREATE MACRO linked_to_ops(t) AS TABLE
SELECT w.* REPLACE (CASE WHEN r.run_id IS NULL OR w.correlation_id IS NULL THEN w.op_id ELSE e.op_id END AS op_id)
FROM query_table(t) w
LEFT JOIN ranks_without_op_ids r ON r.run_id = w.run_id AND r.rank = w.rank
LEFT JOIN enclosing_ops e ON e.run_id = w.run_id AND e.rank = w.rank AND e.correlation_id = w.correlation_id;
