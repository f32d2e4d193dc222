-- Whose External ids are operators. Kineto writes the operator's number beside CUDA calls and GPU work (External id),
-- but until February 2024 (torch 1.12 to 2.2) it wrote the correlation id there, which names another operator or
-- none. A file is of that kind where no External id of a call or of GPU work is anything else: a single one may be both
-- by chance, and then the enclosing operator is the same. Without calls there is nothing to enclose, and it takes more
-- of them to be sure.
-- @use gpu_work
-- @once ranks_without_op_ids
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
