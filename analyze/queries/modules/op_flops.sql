-- FLOPs of operator calls, from the shapes of their inputs.
-- @use inductor

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

-- @macro product_flops(a, b)  2 * M * K * N of two matrices, or of a batch of pairs; NULL if the shapes do not fit.
CREATE MACRO product_flops(a, b) AS CASE
    WHEN len(a) = len(b) AND len(a) IN (2, 3) AND a[len(a)] = b[len(b) - 1] AND (len(a) = 2 OR a[1] = b[1])
        THEN 2 * list_product(a)::BIGINT * b[len(b)]
END;

-- @macro call_flops(op, name, a, b, c, d, inputs, gradients)  FLOPs of a call in sized_calls; NULL if
--   unknown, or beyond 64 bits.
-- `a` to `d` are the shapes of its first four inputs, `gradients` is that of the call.
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

-- @macro compute_roofs(type, tf32)  names of the compute roofs for an input type, highest first; a GPU may lack some of
--   them.
CREATE MACRO compute_roofs(type, tf32) AS CASE
    WHEN type LIKE '%Float8%' THEN ['tensor_fp8']
    WHEN type LIKE '%Float4%' THEN ['tensor_fp4']
    WHEN type IN ('signed char', 'Char') THEN ['tensor_int8']
    WHEN type LIKE '%Half' THEN ['tensor_fp16', 'fp16', 'fp32']
    WHEN type LIKE '%BFloat16' THEN ['tensor_bf16', 'fp32']
    WHEN lower(type) = 'double' THEN ['tensor_fp64', 'fp64']
    WHEN lower(type) <> 'float' THEN []
    WHEN tf32 THEN ['tensor_tf32', 'fp32']
    ELSE ['fp32']
END;

-- @view call_signatures  a row is a signature of sized_calls: hundreds, for millions of calls.
-- @columns run_id, rank, run_group
-- @column signature index         Its number in the rank.
-- @column name text               Operator.
-- @column output text             As in sized_calls.
-- @column input_dims text         Shapes of its inputs, as JSON.
-- @column input_types text        Types of its inputs, as JSON.
-- @column concrete_inputs text    Other inputs, as JSON.
-- @column gradients count         As in sized_calls.
-- @column server_flops FLOP       As in sized_calls, like the following columns.
-- @column server_bytes B          Inputs and outputs.
-- @column type text               Type of the numbers that are multiplied; of other operators, of the first input.
-- @column at_most bool            Whether its FLOPs are an upper bound.
CREATE VIEW call_signatures AS
SELECT
    run_id, rank, run_group, signature, any_value(name) AS name, any_value(output) AS output,
    any_value(input_dims) AS input_dims, any_value(input_types) AS input_types,
    any_value(concrete_inputs) AS concrete_inputs, any_value(gradients) AS gradients,
    any_value(server_flops) AS server_flops, any_value(server_bytes) AS server_bytes,
    coalesce(any_value(server_type), json_extract_string(any_value(input_types), '$[0]')) AS type,
    any_value(at_most) AS at_most
FROM sized_calls
GROUP BY run_id, rank, run_group, signature;

-- @view replays  a row is a CUDA graph of a rank that was replayed, and whose capture is known.
-- @columns run_id, rank
-- @column graph index             As in graph_launches.
-- @column replays count           Replays in the recording.
CREATE VIEW replays AS
SELECT run_id, rank, graph, count(DISTINCT correlation_id) AS replays
FROM gpu_work
WHERE graph IS NOT NULL
GROUP BY run_id, rank, graph;

-- @table op_calls  a row is a call of an operator whose FLOPs count.
-- @columns run_id, rank
-- @column call index              Its number in the rank, as in sized_calls.
-- @column graph index             CUDA graph that it was captured in; NULL of a call of the recording.
-- @columns tid
-- @column call_id id              Its External id.
-- @column name text               Operator.
-- @column op text                 Kind of operator, as in sized_calls.
-- @column type text               As in call_signatures.
-- @column input_dims text         Shapes of its inputs, as JSON.
-- @columns start_ns, end_ns
-- @column model_flops FLOP        Model FLOPs, from the shapes; NULL if these tell at most an upper bound.
-- @column rescored_flops FLOP     Part that an attention backward computes again.
CREATE TABLE op_calls AS
WITH _calls AS (
    SELECT run_id, rank, call, graph, tid, op_id, signature, start_ns, dur_ns FROM sized_calls WHERE counts_flops
),
_kinds AS (
    SELECT
        *, shape(input_dims, 0) AS a, shape(input_dims, 1) AS b, shape(input_dims, 2) AS c, shape(input_dims, 3) AS d
    FROM call_signatures SEMI JOIN _calls USING (run_id, rank, signature)
),
_figures AS MATERIALIZED (
    SELECT
        run_id, rank, signature, name, output AS op, input_dims, type, CASE WHEN NOT at_most THEN
            coalesce(server_flops, call_flops(output, name, a, b, c, d, concrete_inputs, gradients)) END AS model_flops,
        rescored_flops(output, name, b, c, concrete_inputs) AS rescored_flops
    FROM _kinds
)
SELECT
    run_id, rank, call, graph, tid, op_id AS call_id, name, op, type, input_dims, start_ns, start_ns + dur_ns AS end_ns,
    model_flops, rescored_flops
FROM _calls JOIN _figures USING (run_id, rank, signature);

-- @table kernel_precisions  a row is a kernel name, with what it says of products and their precision.
-- @columns run_id
-- @column name text               Kernel name.
-- @column is_product bool         Whether it is of the family gemm, convolution or attention.
-- @column is_tf32 bool            Whether it computes in TF32.
CREATE TABLE kernel_precisions AS
SELECT
    run_id, name, family IN ('gemm', 'convolution', 'attention') AS is_product,
    regexp_matches(name, 'tf32|s1688(gemm|fprop|dgrad|wgrad)') AS is_tf32
FROM kernel_names;
