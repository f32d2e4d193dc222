-- Bytes that an operator call must move at least: its inputs and outputs, each once, as far as their shapes are known.
-- @use inductor, intervals, op_flops

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

-- @table known_outputs  a row is an operator whose output shape follows from its inputs.
-- `like 0`: the shape of input 0; `broadcast`: of inputs 0 and 1; `arguments`: outputs are among the inputs (Inductor's
-- Triton kernels); other values are kinds of flop_ops.
-- @column name text               Operator.
-- @column output text             What the output is.
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

-- @macro output_elements(output, name, a, b, c, d, inputs, flops)  elements of the outputs, by the kind of
--   known_outputs; `a` to `d` are the shapes of the first four inputs, `flops` those of the call.
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

-- @table sized_signatures  a row is a distinct operator of known_outputs with shapes, types and concrete inputs: tens,
--   for millions of calls.
-- @column signature index         Its number.
-- @columns run_group, run_id
-- @column name text               Operator.
-- @column output text             As in known_outputs.
-- @column input_dims text         Shapes of its inputs, as JSON.
-- @column input_types text        Types of its inputs, as JSON.
-- @column concrete_inputs text    Other inputs, as JSON.
CREATE TABLE sized_signatures AS
SELECT row_number() OVER ()::INTEGER AS signature, *
FROM (
    SELECT DISTINCT o.run_group, o.run_id, o.name, k.output, o.input_dims, o.input_types, o.concrete_inputs
    FROM cpu_ops o JOIN known_outputs k USING (name)
    WHERE o.dur_ns IS NOT NULL
);

-- @table sized_calls  a row is a call of an operator of known_outputs that is in no other such call.
-- An operator on a tensor subclass (DTensor) has the shape of the whole and calls itself, or another one, on the local
-- part: the outer call does not count.
-- @column call index              Its number.
-- @columns run_id, rank, tid
-- @column signature index         Its number in sized_signatures.
-- @columns start_ns, end_ns
-- @column gradients count         As in conv_gradients; NULL if not known.
CREATE TABLE sized_calls AS
-- MATERIALIZED: else DuckDB joins all operators to their threads first.
WITH _numbered AS MATERIALIZED (
    SELECT o.run_id, o.rank, o.pid, o.tid, s.signature, o.start_ns, o.start_ns + o.dur_ns AS end_ns
    FROM cpu_ops o
    JOIN sized_signatures s
        ON s.run_id = o.run_id AND s.name = o.name AND s.input_dims IS NOT DISTINCT FROM o.input_dims
        AND s.input_types IS NOT DISTINCT FROM o.input_types
        AND s.concrete_inputs IS NOT DISTINCT FROM o.concrete_inputs
        AND s.run_group IS NOT DISTINCT FROM o.run_group
    WHERE o.dur_ns IS NOT NULL
),
-- In merged traces, threads of several processes may have the same number.
_lanes AS (
    SELECT row_number() OVER ()::INTEGER AS lane, * FROM (SELECT DISTINCT run_id, rank, pid, tid FROM _numbered)
),
_on_lanes AS (
    SELECT lane, l.run_id, l.rank, l.tid, n.signature, n.start_ns, n.end_ns
    FROM _numbered n
    JOIN _lanes l ON l.run_id = n.run_id AND l.rank = n.rank AND l.pid IS NOT DISTINCT FROM n.pid
        AND l.tid IS NOT DISTINCT FROM n.tid
),
_dispatches AS MATERIALIZED (
    SELECT lane, o.start_ns, o.start_ns + o.dur_ns AS end_ns
    FROM cpu_ops o
    JOIN _lanes l ON l.run_id = o.run_id AND l.rank = o.rank AND l.pid IS NOT DISTINCT FROM o.pid
        AND l.tid IS NOT DISTINCT FROM o.tid
    WHERE o.name = 'PythonSubclass'
),
_near AS MATERIALIZED (
    SELECT lane, start_ns, end_ns FROM _on_lanes SEMI JOIN _dispatches USING (lane)
),
_dispatched AS (
    SELECT DISTINCT d.lane, o.start_ns, o.end_ns
    FROM _dispatches d
    ASOF JOIN _near o ON o.lane = d.lane AND o.start_ns <= d.start_ns
    ASOF JOIN _near i ON i.lane = d.lane AND i.start_ns >= d.start_ns
    WHERE d.end_ns <= o.end_ns AND i.end_ns <= d.end_ns
),
_outer AS (
    SELECT n.run_id, n.rank, n.tid, n.signature, n.start_ns, n.end_ns
    FROM _on_lanes n ANTI JOIN _dispatched USING (lane, start_ns, end_ns)
    QUALIFY coalesce(n.end_ns > previous_end(lane, n.start_ns, n.end_ns), true)
)
SELECT row_number() OVER () AS call, o.*, g.gradients
FROM _outer o
LEFT JOIN conv_gradients g
    ON g.run_id = o.run_id AND g.rank = o.rank AND g.tid = o.tid AND g.start_ns = o.start_ns;
