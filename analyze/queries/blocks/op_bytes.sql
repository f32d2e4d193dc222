-- Bytes that an operator must move at least: its inputs and outputs once, as far as the trace tells their shapes.
-- @use inductor_names, model_flops

-- @macro input_dtype_bytes(type)  bytes of an element, by the type that the profiler writes for an input; NULL for what
-- is no tensor.
CREATE MACRO input_dtype_bytes(type) AS CASE
    WHEN type IN ('unsigned char', 'signed char', 'bool', 'Byte', 'Char', 'Bool') OR type LIKE '%Float8%' THEN 1
    WHEN type IN ('c10::Half', 'c10::BFloat16', 'short int', 'short', 'unsigned short', 'Half', 'BFloat16') THEN 2
    WHEN type IN ('float', 'int', 'unsigned int', 'c10::complex<c10::Half>', 'Float', 'Int') THEN 4
    WHEN type IN ('double', 'long int', 'long', 'unsigned long', 'c10::complex<float>', 'Double', 'Long') THEN 8
    WHEN type = 'c10::complex<double>' THEN 16
END;

-- @macro elements(dims)  elements of a shape; 1 for a tensor without dimensions.
CREATE MACRO elements(dims) AS coalesce(list_product(dims), 1)::BIGINT;

-- @table known_outputs  a row is an operator whose output follows from its inputs.
-- Exact for these, unknown for all others. `like 0`: the shape of input 0; `broadcast`: of inputs 0 and 1; `arguments`:
-- among the inputs, as in the Triton kernels that Inductor writes. The other names are those of flop_ops.
-- @column name text             Operator.
-- @column output text           What the output is.
CREATE TABLE known_outputs AS
SELECT name, op AS output FROM flop_ops
UNION ALL
SELECT unnest([
    'aten::clamp_min', 'aten::clamp_min_', 'aten::threshold_backward', 'aten::gelu', 'aten::gelu_backward',
    'aten::silu', 'aten::silu_', 'aten::silu_backward', 'aten::sigmoid', 'aten::tanh', 'aten::hardtanh',
    'aten::hardtanh_', 'aten::hardtanh_backward', 'aten::cudnn_batch_norm', 'aten::cudnn_batch_norm_backward',
    'aten::native_batch_norm', 'aten::native_batch_norm_backward', 'aten::native_layer_norm',
    'aten::native_layer_norm_backward', 'aten::_softmax', 'aten::_softmax_backward_data', 'aten::_log_softmax',
    'aten::_log_softmax_backward_data', 'aten::native_dropout_backward', 'aten::neg', 'aten::exp', 'aten::sqrt',
    'aten::rsqrt'
]), 'like 0'
UNION ALL
SELECT unnest([
    'aten::add', 'aten::add_', 'aten::sub', 'aten::sub_', 'aten::mul', 'aten::mul_', 'aten::div', 'aten::div_'
]), 'broadcast'
UNION ALL
SELECT DISTINCT name, 'arguments'
FROM cpu_ops
WHERE starts_with(name, 'triton_') AND triton_kind(name) IN (
    'pointwise', 'reduction', 'persistent reduction', 'split scan', 'foreach'
);

-- @macro generated_elements(inputs)  elements that a kernel of Inductor goes through: the product of its numbers, which
-- are the sizes of its loops; more where sizes of dynamic shapes are among them. NULL without numbers.
CREATE MACRO generated_elements(inputs) AS (
    SELECT CASE WHEN min(size) > 0 THEN product(size) END
    FROM (SELECT TRY_CAST(unnest(TRY_CAST(inputs AS VARCHAR[])) AS BIGINT) AS size)
);

-- @macro broadcast_elements(a, b)  elements of two shapes broadcast to each other: aligned at the last dimension, the
-- larger of each pair.
CREATE MACRO broadcast_elements(a, b) AS (
    SELECT coalesce(product(greatest(
        CASE WHEN i <= len(a) THEN a[len(a) - i + 1] END, CASE WHEN i <= len(b) THEN b[len(b) - i + 1] END
    )), 1)::BIGINT
    FROM unnest(range(1, greatest(len(a), len(b)) + 1)) AS t(i)
);

-- @macro output_elements(output, name, a, b, c, d, inputs, flops)  elements of the outputs, by the kind of
-- known_outputs; a to d are the shapes of the first four inputs, `flops` the call's.
CREATE MACRO output_elements(output, name, a, b, c, d, inputs, flops) AS CASE output
    WHEN 'like 0' THEN elements(a)
    WHEN 'arguments' THEN 0
    WHEN 'template_matmul' THEN 0
    WHEN 'broadcast' THEN broadcast_elements(a, coalesce(b, []))
    -- 2 * output * C_in / groups * |kernel|: the output is in the FLOPs, but for a transposed one, where the input is.
    WHEN 'conv' THEN CASE WHEN NOT is_true(inputs, 6) THEN flops // nullif(2 * elements(b) // b[1], 0) END
    WHEN 'conv_backward' THEN
        output_mask(inputs, 1) * elements(b) + output_mask(inputs, 2) * elements(c) + output_mask(inputs, 3) * a[2]
    WHEN 'linear' THEN b[1] * c[2]
    WHEN 'matmul' THEN a[1] * b[2]
    WHEN 'batched_matmul' THEN CASE WHEN name = 'aten::baddbmm' THEN b[1] * b[2] * c[3] ELSE a[1] * a[2] * b[3] END
    WHEN 'grouped_matmul' THEN CASE WHEN len(a) + len(b) > 4 THEN flops // nullif(2 * a[len(a)], 0) END
    WHEN 'attention' THEN a[1] * a[2] * a[3] * c[4]
    WHEN 'attention_backward' THEN elements(b) + elements(c) + elements(d)
END;
