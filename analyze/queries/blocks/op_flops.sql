-- FLOPs of operator calls, from the shapes of their inputs, and the GPU work of each call.
-- @use inductor, launches

-- @table flop_ops  a row is an operator whose FLOPs follow from its input shapes.
-- Operators that only call another one (aten::conv2d, aten::linear, aten::matmul) are not listed, so nothing counts
-- twice. Includes the products that Inductor makes of Triton templates, by the operators in their names.
-- @column name text               Operator.
-- @column op text                 Kind: conv, conv_backward, linear, matmul, batched_matmul, grouped_matmul, attention,
--                                 attention_backward or template_matmul.
CREATE TABLE flop_ops AS
SELECT unnest([
    {'name': 'aten::convolution', 'op': 'conv'},
    {'name': 'aten::convolution_backward', 'op': 'conv_backward'},
    -- Backward operators of each library, until torch 1.10.
    {'name': 'aten::cudnn_convolution_backward', 'op': 'conv_backward'},
    {'name': 'aten::cudnn_convolution_transpose_backward', 'op': 'conv_backward'},
    {'name': 'aten::miopen_convolution_backward', 'op': 'conv_backward'},
    {'name': 'aten::miopen_convolution_transpose_backward', 'op': 'conv_backward'},
    {'name': 'aten::miopen_depthwise_convolution_backward', 'op': 'conv_backward'},
    {'name': 'aten::mkldnn_convolution_backward', 'op': 'conv_backward'},
    {'name': 'aten::thnn_conv2d_backward', 'op': 'conv_backward'},
    {'name': 'aten::thnn_conv_depthwise2d_backward', 'op': 'conv_backward'},
    {'name': 'aten::addmm', 'op': 'linear'},
    {'name': 'aten::mm', 'op': 'matmul'},
    {'name': 'aten::_scaled_mm', 'op': 'matmul'},
    {'name': 'aten::_scaled_mm_v2', 'op': 'matmul'},
    {'name': 'aten::_grouped_mm', 'op': 'grouped_matmul'},
    {'name': 'aten::_scaled_grouped_mm', 'op': 'grouped_matmul'},
    {'name': 'aten::_scaled_grouped_mm_v2', 'op': 'grouped_matmul'},
    {'name': 'aten::bmm', 'op': 'batched_matmul'},
    {'name': 'aten::baddbmm', 'op': 'batched_matmul'},
    {'name': 'aten::_scaled_dot_product_flash_attention', 'op': 'attention'},
    {'name': 'aten::_scaled_dot_product_efficient_attention', 'op': 'attention'},
    {'name': 'aten::_scaled_dot_product_cudnn_attention', 'op': 'attention'},
    {'name': 'aten::_scaled_dot_product_flash_attention_for_cpu', 'op': 'attention'},
    {'name': 'aten::_scaled_dot_product_flash_attention_backward', 'op': 'attention_backward'},
    {'name': 'aten::_scaled_dot_product_efficient_attention_backward', 'op': 'attention_backward'},
    {'name': 'aten::_scaled_dot_product_cudnn_attention_backward', 'op': 'attention_backward'},
    {'name': 'aten::_scaled_dot_product_flash_attention_for_cpu_backward', 'op': 'attention_backward'}
], recursive := true)
UNION ALL
SELECT DISTINCT name, 'template_matmul'
FROM cpu_ops
WHERE starts_with(name, 'triton_tem_')
    AND list_has_any(fused_ops(name), ['mm', 'addmm', 'bmm', 'baddbmm', '_scaled_mm']);

-- @macro shape(dims, i)  the shape of input i (BIGINT[]); NULL if the trace has none.
CREATE MACRO shape(dims, i) AS CAST(json_extract(dims, '$[' || i || ']') AS BIGINT[]);

-- @macro spaced_shapes(dims)  input shapes in torch's spacing, whatever program wrote the trace, so that equal shapes
--   are equal text.
CREATE MACRO spaced_shapes(dims) AS replace(regexp_replace(dims, '\s', '', 'g'), ',', ', ');

-- @macro int_list(inputs, i)  a list of numbers among the concrete inputs, which are JSON strings: "[2, 2]", "(1,1)",
--   "False", "1".
CREATE MACRO int_list(inputs, i) AS CAST(string_split(
    nullif(trim(json_extract_string(inputs, '$[' || i || ']'), '[](), '), ''), ','
) AS BIGINT[]);

-- @macro is_true(inputs, i)  whether a concrete input is True.
CREATE MACRO is_true(inputs, i) AS json_extract_string(inputs, '$[' || i || ']') = 'True';

-- @macro halves(name, inputs)  the divisor of attention FLOPs: 2 if causal (the mask leaves half), else 1, also if the
--   trace has no concrete inputs.
-- Operators have is_causal at different positions.
CREATE MACRO halves(name, inputs) AS CASE WHEN is_true(inputs, CASE
    WHEN name IN ('aten::_scaled_dot_product_efficient_attention', 'aten::_scaled_dot_product_cudnn_attention') THEN 6
    WHEN name = 'aten::_scaled_dot_product_flash_attention_for_cpu_backward' THEN 7
    WHEN name = 'aten::_scaled_dot_product_cudnn_attention_backward' THEN 14
    WHEN ends_with(name, '_backward') THEN 11
    ELSE 4
END) THEN 2 ELSE 1 END;

-- @macro output_mask(inputs, i)  whether convolution_backward computes a gradient (input 10): 1 = input, 2 = weight, 3
--   = bias.
CREATE MACRO output_mask(inputs, i) AS
    (string_split(trim(json_extract_string(inputs, '$[10]'), '[]() '), ',')[i] ILIKE '%true%')::INTEGER;

-- @macro out_size(x, w, stride, padding, dilation, i)  size of dimension i of a convolution's output; x is [N, C_in,
--   ..], w is [C_out, C_in / groups, ..].
CREATE MACRO out_size(x, w, stride, padding, dilation, i) AS
    (x[i + 2] + 2 * coalesce(padding[i], padding[1]) - coalesce(dilation[i], dilation[1]) * (w[i + 2] - 1) - 1)
    // coalesce(stride[i], stride[1]) + 1;

-- @macro conv_flops(x, w, stride, padding, dilation, transposed)  2 * N * C_out * (C_in / groups) * |kernel| * |output|
--   (transposed: |input|).
CREATE MACRO conv_flops(x, w, stride, padding, dilation, transposed) AS
    2 * x[1] * w[1] * w[2] * w[3] * coalesce(w[4], 1) * coalesce(w[5], 1)
    * CASE WHEN transposed THEN x[3] * coalesce(x[4], 1) * coalesce(x[5], 1)
        ELSE out_size(x, w, stride, padding, dilation, 1)
            * CASE WHEN len(x) > 3 THEN out_size(x, w, stride, padding, dilation, 2) ELSE 1 END
            * CASE WHEN len(x) > 4 THEN out_size(x, w, stride, padding, dilation, 3) ELSE 1 END
    END;

-- @macro conv_backward_flops(grad, x, w, transposed)  FLOPs of one gradient (input or weight), the same as of the
--   forward; the output size is that of the incoming gradient.
CREATE MACRO conv_backward_flops(grad, x, w, transposed) AS
    2 * x[1] * w[1] * w[2] * w[3] * coalesce(w[4], 1) * coalesce(w[5], 1)
    * CASE WHEN transposed THEN x[3] * coalesce(x[4], 1) * coalesce(x[5], 1)
        ELSE grad[3] * coalesce(grad[4], 1) * coalesce(grad[5], 1) END;

-- @table conv_gradients  a row is a backward convolution of a library's own operator (until torch 1.10).
-- Each gradient is an operator of its own; traces of that time have no output mask.
-- @columns run_id, rank, tid, start_ns
-- @column gradients count         Number of the gradients with FLOPs (input, weight) that it computes.
CREATE TABLE conv_gradients AS
WITH _named AS (
    SELECT unnest([
        'aten::cudnn_convolution_backward', 'aten::cudnn_convolution_transpose_backward',
        'aten::miopen_convolution_backward', 'aten::miopen_convolution_transpose_backward',
        'aten::miopen_depthwise_convolution_backward', 'aten::mkldnn_convolution_backward'
    ]) AS name
),
_ops AS MATERIALIZED (
    SELECT run_id, rank, tid, name, start_ns, dur_ns
    FROM cpu_ops
    SEMI JOIN (SELECT name || unnest(['', '_input', '_weight', '_weights']) AS name FROM _named) USING (name)
),
_calls AS (
    SELECT run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns FROM _ops SEMI JOIN _named USING (name)
),
_parts AS (
    SELECT run_id, rank, tid, start_ns FROM _ops ANTI JOIN _named USING (name)
)
SELECT c.run_id, c.rank, c.tid, c.start_ns, count(*) AS gradients
FROM _parts p
ASOF JOIN _calls c ON c.run_id = p.run_id AND c.rank = p.rank AND c.tid = p.tid AND p.start_ns >= c.start_ns
WHERE p.start_ns < c.end_ns
GROUP BY ALL;

-- @view flop_calls  a row is a call of one of flop_ops without another such call inside it.
-- A grouped product without a kernel of its own calls the products of its groups; an operator on DTensors calls itself
-- on the local shards.
-- @column * of cpu_ops
-- @column op text                 Kind of operator, as in flop_ops.
-- @column gradients count         As in conv_gradients; NULL if not known.
CREATE VIEW flop_calls AS
SELECT o.*, f.op, g.gradients
FROM cpu_ops o
JOIN flop_ops f USING (name)
LEFT JOIN conv_gradients g ON g.run_id = o.run_id AND g.rank = o.rank AND g.tid = o.tid AND g.start_ns = o.start_ns
QUALIFY coalesce(
    lead(o.start_ns) OVER (PARTITION BY o.run_id, o.rank, o.tid ORDER BY o.start_ns, o.dur_ns DESC)
        >= o.start_ns + o.dur_ns, true
);

-- @macro product_flops(a, b)  2 * M * K * N of two matrices, or of a batch of pairs; NULL if the shapes do not fit.
CREATE MACRO product_flops(a, b) AS CASE
    WHEN len(a) = len(b) AND len(a) IN (2, 3) AND a[len(a)] = b[len(b) - 1] AND (len(a) = 2 OR a[1] = b[1])
        THEN 2 * list_product(a)::BIGINT * b[len(b)]
END;

-- @macro call_flops(op, name, a, b, c, d, inputs, gradients)  FLOPs of a call of one of flop_ops; NULL if unknown, or
--   beyond 64 bits.
-- `a` to `d` are the shapes of its first four inputs, `gradients` is from conv_gradients.
CREATE MACRO call_flops(op, name, a, b, c, d, inputs, gradients) AS TRY(CASE op
    WHEN 'conv' THEN conv_flops(a, b, int_list(inputs, 3), int_list(inputs, 4), int_list(inputs, 5), is_true(inputs, 6))
    -- Inputs: gradient, input, weight; libraries' own operators: input, gradient, weight. The gradients that thnn
    -- computes are unknown.
    WHEN 'conv_backward' THEN CASE WHEN name = 'aten::convolution_backward'
        THEN (output_mask(inputs, 1) + output_mask(inputs, 2)) * conv_backward_flops(a, b, c, is_true(inputs, 7))
        ELSE gradients * conv_backward_flops(b, a, c, contains(name, 'transpose')) END
    WHEN 'linear' THEN 2 * b[1] * b[2] * c[2]
    WHEN 'matmul' THEN 2 * a[1] * a[2] * b[2]
    WHEN 'batched_matmul' THEN CASE WHEN name = 'aten::baddbmm'
        THEN 2 * b[1] * b[2] * b[3] * c[3] ELSE 2 * a[1] * a[2] * a[3] * b[3] END
    -- Groups are consecutive rows of a, with a matrix each in b (2D x 3D); or consecutive columns of b (3D x 2D); or
    -- a matrix each in both (3D x 3D); or parts of the inner dimension (2D x 2D).
    WHEN 'grouped_matmul' THEN
        2 * list_product(a)::BIGINT * b[len(b)] // CASE WHEN len(a) = 3 AND len(b) = 2 THEN a[1] ELSE 1 END
    -- Arguments of a template: the addend of addmm and baddbmm, the matrices, other fused inputs, the product.
    WHEN 'template_matmul' THEN CASE WHEN list_has_any(fused_ops(name), ['addmm', 'baddbmm'])
        THEN product_flops(b, c) ELSE product_flops(a, b) END
    -- q [.., heads, s_q, d], k [.., heads, s_k, d], v [.., heads, s_k, d_v]: scores, then values.
    WHEN 'attention' THEN 2 * a[1] * a[2] * a[3] * b[3] * (a[4] + c[4]) // halves(name, inputs)
    -- Scores again, and the gradients of scores, V, Q and K; the first argument is the gradient.
    WHEN 'attention_backward' THEN 2 * b[1] * b[2] * b[3] * c[3] * (3 * b[4] + 2 * d[4]) // halves(name, inputs)
END);

-- @macro rescored_flops(op, name, b, c, inputs)  the part of call_flops for which an attention backward computes the
--   scores again; 0 for other operators.
CREATE MACRO rescored_flops(op, name, b, c, inputs) AS TRY(
    CASE op WHEN 'attention_backward' THEN 2 * b[1] * b[2] * b[3] * c[3] * b[4] // halves(name, inputs) ELSE 0 END
);

-- @macro is_tf32_kernel(name)  whether a kernel's name says that it computes in TF32.
CREATE MACRO is_tf32_kernel(name) AS regexp_matches(name, 'tf32|s1688(gemm|fprop|dgrad|wgrad)');

-- @macro compute_roofs(type, tf32)  names of the compute roofs for an input type, highest first; a GPU may lack some of
--   them.
CREATE MACRO compute_roofs(type, tf32) AS CASE
    WHEN type LIKE '%Float8%' THEN ['tensor_fp8']
    WHEN type LIKE '%Half' THEN ['tensor_fp16', 'fp16', 'fp32']
    WHEN type LIKE '%BFloat16' THEN ['tensor_bf16', 'fp32']
    WHEN lower(type) = 'double' THEN ['tensor_fp64', 'fp64']
    WHEN lower(type) <> 'float' THEN []
    WHEN tf32 THEN ['tensor_tf32', 'fp32']
    ELSE ['fp32']
END;

-- @table op_calls  a row is a call of an operator with a FLOP formula.
-- @column call index              Its number.
-- @columns run_id, rank, tid
-- @column call_id id              Its External id.
-- @column name text               Operator.
-- @column op text                 Kind of operator, as in flop_ops.
-- @column type text               Type of its first input.
-- @column input_dims text         Shapes of its inputs, as JSON.
-- @columns start_ns, end_ns
-- @column model_flops FLOP        Model FLOPs, from the shapes.
-- @column rescored_flops FLOP     Part that an attention backward computes again.
CREATE TABLE op_calls AS
WITH _calls AS MATERIALIZED (
    SELECT * FROM flop_calls
),
-- Tens, for thousands of calls.
_kinds AS (
    SELECT
        *, shape(input_dims, 0) AS a, shape(input_dims, 1) AS b, shape(input_dims, 2) AS c, shape(input_dims, 3) AS d
    FROM (SELECT DISTINCT name, op, input_dims, input_types, concrete_inputs, gradients FROM _calls)
),
_figures AS MATERIALIZED (
    SELECT
        name, input_dims, input_types, concrete_inputs, gradients, json_extract_string(input_types, '$[0]') AS type,
        call_flops(op, name, a, b, c, d, concrete_inputs, gradients) AS model_flops,
        rescored_flops(op, name, b, c, concrete_inputs) AS rescored_flops
    FROM _kinds
)
SELECT
    row_number() OVER () AS call, c.run_id, c.rank, c.tid, c.op_id AS call_id, c.name, c.op, f.type, c.input_dims,
    c.start_ns, c.start_ns + c.dur_ns AS end_ns, f.model_flops, f.rescored_flops
FROM _calls c JOIN _figures f
    ON f.name = c.name AND f.input_dims IS NOT DISTINCT FROM c.input_dims
    AND f.input_types IS NOT DISTINCT FROM c.input_types
    AND f.concrete_inputs IS NOT DISTINCT FROM c.concrete_inputs AND f.gradients IS NOT DISTINCT FROM c.gradients;

-- @macro work_of_calls(calls)  GPU work with the operator call that launched it. `calls` is op_calls or sized_calls:
--   calls of a thread are not nested.
-- @columns run_id, rank, device
-- @column is_kernel bool          Whether it is a kernel.
-- @column is_product bool         Whether it is a kernel of the family gemm, convolution or attention.
-- @column is_tf32 bool            Whether it is a kernel whose name says that it computes in TF32.
-- @columns start_ns, dur_ns
-- @column call index              Number of the call in `calls`; NULL if none of them launched it.
CREATE MACRO work_of_calls(calls) AS TABLE
WITH _names AS (
    SELECT
        run_id, name, family IN ('gemm', 'convolution', 'attention') AS is_product, is_tf32_kernel(name) AS is_tf32
    FROM kernel_names
),
-- An as-of join with one key, the number of a thread, takes DuckDB half the time of one with three.
_call_threads AS MATERIALIZED (
    SELECT row_number() OVER ()::INTEGER AS thread, * FROM (SELECT DISTINCT run_id, rank, tid FROM query_table(calls))
),
_calls_on_threads AS (
    SELECT t.thread, c.start_ns, c.end_ns, c.call
    FROM query_table(calls) c
    JOIN _call_threads t ON t.run_id = c.run_id AND t.rank = c.rank AND t.tid IS NOT DISTINCT FROM c.tid
    WHERE c.end_ns IS NOT NULL
),
_work_on_threads AS (
    SELECT
        w.run_id, w.rank, w.device, w.kind = 'kernel' AS is_kernel, coalesce(n.is_product, false) AS is_product,
        coalesce(n.is_tf32, false) AS is_tf32, w.start_ns, w.dur_ns, w.from_ns, t.thread
    FROM work_origins w
    LEFT JOIN _names n ON n.run_id = w.run_id AND n.name = w.name
    LEFT JOIN _call_threads t ON t.run_id = w.run_id AND t.rank = w.rank AND t.tid IS NOT DISTINCT FROM w.from_tid
)
SELECT
    run_id, rank, device, is_kernel, is_product, is_tf32, w.start_ns, dur_ns,
    CASE WHEN from_ns < end_ns THEN call END AS call
FROM _work_on_threads w ASOF LEFT JOIN _calls_on_threads c ON c.thread = w.thread AND w.from_ns >= c.start_ns;
