-- How many FLOPs do the operators need, by their shapes?
--
-- Model FLOPs: 2 per multiply-add, from the input shapes in the trace (record_shapes), as torch.utils.flop_counter
-- counts them: convolutions and their backward (input and weight gradients by the output mask), mm, addmm, bmm,
-- baddbmm, fp8 and grouped products, and scaled dot-product attention. Operators of inference servers count, too:
-- quantized products, fused experts and attention of requests. Bias, activations and normalization are not counted.
-- Grouped convolutions are divided by the groups in both directions. Unlike in torch.utils.flop_counter, causal
-- attention counts half, as in FlashAttention's own figures, if the trace says that it is causal (concrete inputs,
-- since torch 2.1). Runs without any shapes are left out.
-- @column op text                 conv, linear, matmul, batched_matmul, grouped_matmul, attention, with _backward for
--                                 gradients, template_matmul, server_matmul or server_attention.
-- @column name text               Operator.
-- @column calls count             Calls.
-- @column flops FLOP              Sum over the calls; empty where the shapes of none are known.
-- @column flops_pct %             Share of all counted FLOPs.
-- @column avg_flops FLOP          Mean per call with known shapes.
-- @column at_most_calls count     Calls whose FLOPs are an upper bound: the shapes do not have the lengths of requests.
-- @column unknown_calls count     Calls without shapes in the trace; they count 0.
-- @main name, calls, flops, flops_pct, avg_flops, at_most_calls, unknown_calls
-- @order flops DESC, name
-- @use arithmetic, launches, op_flops
-- @needs operators with input shapes (record_shapes=True)
-- @rows if an operator has a FLOP formula
-- @drill name op-roofline name={name}
WITH counted AS (
    SELECT run_id, rank, signature, sum(CASE WHEN graph IS NULL THEN 1 ELSE replays END) AS calls
    FROM sized_calls
    SEMI JOIN (SELECT DISTINCT run_id FROM launching_ops WHERE input_dims IS NOT NULL) USING (run_id)
    LEFT JOIN replays USING (run_id, rank, graph)
    WHERE counts_flops AND (graph IS NULL OR replays IS NOT NULL)
    GROUP BY ALL
),
parsed AS (
    SELECT
        *, output AS op, shape(input_dims, 0) AS a, shape(input_dims, 1) AS b, shape(input_dims, 2) AS c,
        shape(input_dims, 3) AS d
    FROM counted JOIN call_signatures USING (run_id, rank, signature)
),
each_call AS (
    SELECT
        run_group, op, name, calls, at_most,
        coalesce(server_flops, call_flops(op, name, a, b, c, d, concrete_inputs, gradients)) AS flops
    FROM parsed
)
SELECT
    run_group, op, name, sum(calls)::BIGINT AS calls,
    sum(flops * calls)::BIGINT AS flops,
    pct(sum(flops * calls), sum(sum(flops * calls)) OVER (PARTITION BY run_group)) AS flops_pct,
    sum(flops * calls)::DOUBLE / sum(calls) FILTER (flops IS NOT NULL) AS avg_flops,
    coalesce(sum(calls) FILTER (at_most), 0)::BIGINT AS at_most_calls,
    coalesce(sum(calls) FILTER (flops IS NULL), 0)::BIGINT AS unknown_calls
FROM each_call
GROUP BY run_group, op, name
