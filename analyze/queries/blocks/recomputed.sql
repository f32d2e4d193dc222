-- Which operators of the forward pass run again in the backward pass (activation checkpointing).
-- @use call_tree_no, outermost_nodes
-- @view tree_ops  a row is an operator of the call tree.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
-- @column node index            Its number in call_tree_no.
-- @column last_node index       The last number below it.
-- @column name text             Operator.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
-- @column is_backward bool      Whether it is a node of the backward pass.
-- @column is_forward bool       Whether it recorded a node of its own.
-- @column input_dims text       Shapes of its inputs, as JSON.
CREATE VIEW tree_ops AS
SELECT
    t.run_group, t.run_id, t.rank, t.tid, t.node, t.last_node, t.name, t.start_ns, t.dur_ns,
    starts_with(t.name, 'autograd::engine::evaluate_function') AS is_backward,
    c.sequence_number IS NOT NULL AND coalesce(c.fwd_thread, 0) = 0 AS is_forward, c.input_dims
FROM call_tree_no t
JOIN cpu_ops c ON c.run_id = t.run_id AND c.rank = t.rank AND c.op_id = t.op_id AND c.name = t.name
    AND c.tid IS NOT DISTINCT FROM t.tid AND c.start_ns = t.start_ns
WHERE t.kind = 'op';

-- @view backward_nodes  a row is an outermost node of the backward pass.
-- @column * of tree_ops
CREATE VIEW backward_nodes AS
SELECT * FROM tree_ops WHERE is_backward QUALIFY outermost(node, last_node);

-- @view recomputed_ops  a row is an outermost operator that runs again in the backward pass.
-- @column * of tree_ops
CREATE VIEW recomputed_ops AS
WITH _placed AS (
    SELECT n.*, coalesce(n.node <= b.last_node, false) AS again
    FROM tree_ops n ASOF LEFT JOIN (SELECT node, last_node FROM backward_nodes) b ON n.node >= b.node
    WHERE NOT n.is_backward
),
_first AS (
    SELECT run_id, rank, name, coalesce(input_dims, '') AS shapes, min(start_ns) AS first_ns
    FROM _placed
    WHERE NOT again
    GROUP BY ALL
)
SELECT p.* EXCLUDE (again)
FROM _placed p
JOIN _first f ON f.run_id = p.run_id AND f.rank = p.rank AND f.name = p.name AND f.shapes = coalesce(p.input_dims, '')
WHERE p.again AND p.is_forward AND f.first_ns < p.start_ns
QUALIFY outermost(p.node, p.last_node);
