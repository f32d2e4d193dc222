-- How many FLOPs do the operators' shapes ask for?
--
-- Model FLOPs: 2 for every multiply-add, from the input shapes in the trace (record_shapes), as torch.utils.flop_counter
-- counts them: convolutions and their backward (input and weight gradients as the output mask says), mm, addmm, bmm, baddbmm,
-- and scaled dot-product attention. Bias, activations and normalisation are not counted. Grouped convolutions are divided by
-- the groups in both directions.
-- @use arithmetic, model_flops
-- @column op text                 conv, linear, matmul, batched_matmul or attention, with _backward where it is one.
-- @column name text               Operator.
-- @column calls count             Calls.
-- @column flops FLOP              Sum over the calls.
-- @column flops_pct %             Share of all counted FLOPs.
-- @column avg_flops FLOP          Mean of a call whose shapes are known.
-- @column unknown_calls count     Calls whose shapes the trace does not have; they count 0.
-- @order flops DESC, name
WITH counted AS (
    SELECT run_group, op, name, input_dims, concrete_inputs, count(*) AS calls
    FROM cpu_ops JOIN flop_ops USING (name)
    GROUP BY ALL
),
parsed AS (
    SELECT *,
        shape(input_dims, 0) AS a, shape(input_dims, 1) AS b, shape(input_dims, 2) AS c, shape(input_dims, 3) AS d
    FROM counted
),
each_call AS (
    SELECT run_group, op, name, calls,
        CASE op
            WHEN 'conv' THEN conv_flops(a, b,
                int_list(concrete_inputs, 3), int_list(concrete_inputs, 4), int_list(concrete_inputs, 5),
                is_true(concrete_inputs, 6))
            WHEN 'conv_backward' THEN
                (output_mask(concrete_inputs, 1) + output_mask(concrete_inputs, 2))
                * conv_backward_flops(a, b, c, is_true(concrete_inputs, 7))
            WHEN 'linear' THEN 2 * b[1] * b[2] * c[2]
            WHEN 'matmul' THEN 2 * a[1] * a[2] * b[2]
            WHEN 'batched_matmul' THEN CASE WHEN name = 'aten::baddbmm'
                THEN 2 * b[1] * b[2] * b[3] * c[3] ELSE 2 * a[1] * a[2] * a[3] * b[3] END
            -- q [.., heads, s_q, d], k [.., heads, s_k, d], v [.., heads, s_k, d_v]: scores, then values
            WHEN 'attention' THEN 2 * a[1] * a[2] * a[3] * b[3] * (a[4] + c[4])
            -- scores again, and the gradients of scores, V, Q and K; the first argument is the gradient
            WHEN 'attention_backward' THEN 2 * b[1] * b[2] * b[3] * c[3] * (3 * b[4] + 2 * d[4])
        END AS flops
    FROM parsed
)
SELECT
    run_group, op, name, sum(calls)::BIGINT AS calls,
    coalesce(sum(flops * calls), 0)::BIGINT AS flops,
    pct(coalesce(sum(flops * calls), 0), sum(sum(flops * calls)) OVER (PARTITION BY run_group)) AS flops_pct,
    sum(flops * calls)::DOUBLE / sum(calls) FILTER (flops IS NOT NULL) AS avg_flops,
    coalesce(sum(calls) FILTER (flops IS NULL), 0)::BIGINT AS unknown_calls
FROM each_call
GROUP BY run_group, op, name
