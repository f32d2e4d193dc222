-- Bytes that an operator call must move at least: its inputs and outputs, each once, as far as their shapes are known.
-- @use op_flops

-- @macro input_dtype_bytes(type)  bytes per element, by the type that the profiler records for an input; NULL for
--   inputs that are not tensors.
CREATE MACRO input_dtype_bytes(type) AS CASE
    WHEN type IN ('unsigned char', 'signed char', 'bool', 'Byte', 'Char', 'Bool') OR type LIKE '%Float8%' THEN 1
    WHEN type IN ('c10::Half', 'c10::BFloat16', 'short int', 'short', 'unsigned short', 'Half', 'BFloat16') THEN 2
    WHEN type IN ('float', 'int', 'unsigned int', 'c10::complex<c10::Half>', 'Float', 'Int') THEN 4
    WHEN type IN ('double', 'long int', 'long', 'unsigned long', 'c10::complex<float>', 'Double', 'Long') THEN 8
    WHEN type = 'c10::complex<double>' THEN 16
END;

-- @macro elements(dims)  number of elements of a shape; 1 for a tensor without dimensions.
CREATE MACRO elements(dims) AS coalesce(list_product(dims), 1)::BIGINT;

-- @macro generated_elements(inputs)  elements in the loops of an Inductor kernel: the product of its numbers, which are
--   loop sizes; more with dynamic shapes. NULL without numbers.
CREATE MACRO generated_elements(inputs) AS (
    SELECT CASE WHEN min(size) > 0 THEN product(size) END
    FROM (SELECT TRY_CAST(unnest(TRY_CAST(inputs AS VARCHAR[])) AS BIGINT) AS size)
);

-- @macro broadcast_elements(a, b)  elements of two shapes broadcast to each other: aligned at the last dimension, the
--   larger of each pair.
CREATE MACRO broadcast_elements(a, b) AS (
    SELECT coalesce(product(greatest(
        CASE WHEN i <= len(a) THEN a[len(a) - i + 1] END, CASE WHEN i <= len(b) THEN b[len(b) - i + 1] END
    )), 1)::BIGINT
    FROM unnest(range(1, greatest(len(a), len(b)) + 1)) AS t(i)
);

-- @macro output_elements(output, name, a, b, c, d, inputs, flops)  elements of the outputs, by the kind in
--   sized_calls; `a` to `d` are the shapes of the first four inputs, `flops` those of the call.
CREATE MACRO output_elements(output, name, a, b, c, d, inputs, flops) AS CASE output
    WHEN 'like 0' THEN elements(a)
    WHEN 'arguments' THEN 0
    WHEN 'template_matmul' THEN 0
    WHEN 'broadcast' THEN broadcast_elements(a, coalesce(b, []))
    -- FLOPs = 2 * output * C_in / groups * |kernel|, so the output follows from them, except for transposed ones.
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
