-- Which operator made a CUDA call and launched GPU work: by its External id, or where that is none (`op_ids`) by where
-- the call lies.
-- @use enclosing_ops, op_ids
-- @macro linked_to_ops(t)  a table with run_id, rank, correlation_id and op_id, such as gpu_work or cuda_calls, with
-- op_id that of the operator in all files.
-- NULL where no operator is known. Whatever joins GPU work or calls to operators reads it through this.
-- @column * of t
CREATE MACRO linked_to_ops(t) AS TABLE
SELECT w.* REPLACE (CASE WHEN r.run_id IS NULL OR w.correlation_id IS NULL THEN w.op_id ELSE e.op_id END AS op_id)
FROM query_table(t) w
LEFT JOIN ranks_without_op_ids r ON r.run_id = w.run_id AND r.rank = w.rank
LEFT JOIN enclosing_ops e ON e.run_id = w.run_id AND e.rank = w.rank AND e.correlation_id = w.correlation_id;
