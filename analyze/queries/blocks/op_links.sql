-- Which operator made a CUDA call and launched GPU work: by its External id, or where that is none (`call_ops`) by
-- where the call lies.
-- @macro linked_to_ops(t)  a table with run_id, rank, correlation_id and op_id, such as gpu_work or cuda_calls, with
-- op_id that of the operator in all files.
-- NULL where no operator is known. Whatever joins GPU work or calls to operators reads it through this.
-- @column * of t
CREATE MACRO linked_to_ops(t) AS TABLE
SELECT w.* REPLACE (CASE WHEN c.correlation_id IS NULL THEN w.op_id ELSE c.op_id END AS op_id)
FROM query_table(t) w
LEFT JOIN call_ops c ON c.run_id = w.run_id AND c.rank = w.rank AND c.correlation_id = w.correlation_id;
