-- Which call of an operator launched GPU work.
-- @use model_flops, work_points
-- @macro work_of_calls(calls)  GPU work with the call in which it comes from the CPU.
-- `calls` is op_calls or sized_calls: on one thread, none lies in another.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column is_kernel bool        Whether it is a kernel.
-- @column is_product bool       Whether it is a kernel of the family gemm, convolution or attention.
-- @column is_tf32 bool          Whether it is a kernel whose name says that it computes in TF32.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
-- @column call index            Number of the call in `calls`; NULL where none of these launched it.
CREATE MACRO work_of_calls(calls) AS TABLE
WITH _names AS (
    SELECT
        run_id, name, family IN ('gemm', 'convolution', 'attention') AS is_product, is_tf32_kernel(name) AS is_tf32
    FROM kernel_names
)
SELECT
    w.run_id, w.rank, w.device, w.kind = 'kernel' AS is_kernel, coalesce(n.is_product, false) AS is_product,
    coalesce(n.is_tf32, false) AS is_tf32, w.start_ns, w.dur_ns, CASE WHEN w.from_ns < c.end_ns THEN c.call END AS call
FROM work_points w
LEFT JOIN _names n ON n.run_id = w.run_id AND n.name = w.name
ASOF LEFT JOIN (SELECT * FROM query_table(calls) WHERE end_ns IS NOT NULL) c
    ON c.run_id = w.run_id AND c.rank = w.rank
    AND coalesce(c.tid, -9223372036854775808) = coalesce(w.from_tid, -9223372036854775808)
    AND w.from_ns >= c.start_ns;
