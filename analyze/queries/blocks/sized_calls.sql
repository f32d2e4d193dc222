-- Calls of operators of which the bytes, and of some the FLOPs, follow from their shapes.
-- @use intervals, model_flops, op_bytes

-- @table sized_signatures  a row is what operators of known_outputs are called with.
-- There are tens where there are millions of calls.
-- @column signature index       Its number.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column name text             Operator.
-- @column output text           As in known_outputs.
-- @column input_dims text       Shapes of its inputs, as JSON.
-- @column input_types text      Types of its inputs, as JSON.
-- @column concrete_inputs text  Other inputs, as JSON.
CREATE TABLE sized_signatures AS
SELECT row_number() OVER ()::INTEGER AS signature, *
FROM (
    SELECT DISTINCT o.run_group, o.run_id, o.name, k.output, o.input_dims, o.input_types, o.concrete_inputs
    FROM cpu_ops o JOIN known_outputs k USING (name)
    WHERE o.dur_ns IS NOT NULL
);

-- @table sized_calls  a row is a call of an operator of known_outputs that lies in no other such call.
-- On a tensor of a subclass (DTensor) an operator is called with the shape of the whole, and calls itself, or another,
-- on what this rank has of it: the outer call is none.
-- @column call index            Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
-- @column signature index       Its number in sized_signatures.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column gradients count       As in conv_gradients; NULL where nothing says.
CREATE TABLE sized_calls AS
-- Materialized, or all operators are joined to their threads first, texts and all.
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
-- Of merged traces, threads of several processes may have one number.
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
    QUALIFY coalesce(n.end_ns > furthest_end(lane, n.start_ns, n.end_ns), true)
)
SELECT row_number() OVER () AS call, o.*, g.gradients
FROM _outer o
LEFT JOIN conv_gradients g
    ON g.run_id = o.run_id AND g.rank = o.rank AND g.tid = o.tid AND g.start_ns = o.start_ns;
