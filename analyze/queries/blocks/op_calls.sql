-- Calls of operators, with the FLOPs that their shapes ask for.
-- @use model_flops

-- @table op_calls  a row is a call of an operator whose FLOPs follow from its shapes.
-- @column call index            Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
-- @column call_id id            Its External id.
-- @column name text             Operator.
-- @column op text               Its kind in flop_ops.
-- @column type text             Type of its first input.
-- @column input_dims text       Shapes of its inputs, as JSON.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column model_flops FLOP      What the shapes ask for.
-- @column rescored_flops FLOP   The part of them that an attention backward computes again.
CREATE TABLE op_calls AS
WITH _calls AS MATERIALIZED (
    SELECT * FROM flop_calls
),
-- There are tens where there are thousands of calls.
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
