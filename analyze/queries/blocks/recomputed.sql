-- Which operators of the forward pass run again in the backward pass (activation checkpointing).
-- @use call_tree_no, call_tree_sums_no, outermost_nodes
-- @once recomputed_ops

-- @view backward_nodes  a row is an outermost node of the backward pass.
-- What lies inside which is asked of the paths, of which there are few.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
-- @column node index            Its number in call_tree_no.
-- @column last_node index       The last number below it.
-- @column path index            Its path in call_paths_no.
-- @column last_path index       The last path below that.
-- @column name text             Operator.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE VIEW backward_nodes AS
WITH _paths AS (
    SELECT path, last_path
    FROM call_paths_no
    WHERE kind = 'op' AND starts_with(name, 'autograd::engine::evaluate_function')
    QUALIFY outermost(path, last_path)
)
SELECT run_group, run_id, rank, tid, node, last_node, path, last_path, name, start_ns, dur_ns
FROM call_tree_no JOIN _paths USING (path);

-- @view recomputed_ops  a row is an outermost operator that runs again in the backward pass.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
-- @column node index            Its number in call_tree_no.
-- @column last_node index       The last number below it.
-- @column name text             Operator.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
-- @column input_dims text       Shapes of its inputs, as JSON.
CREATE VIEW recomputed_ops AS
WITH _backward AS (
    SELECT DISTINCT path, last_path FROM backward_nodes
),
_paths AS (
    SELECT p.path, p.path <= b.last_path IS TRUE AS again
    FROM call_paths_no p ASOF LEFT JOIN _backward b ON p.path >= b.path
    WHERE p.kind = 'op' AND NOT starts_with(p.name, 'autograd::engine::evaluate_function')
),
-- Operators that recorded a node of their own.
_forward AS (
    SELECT run_id, rank, tid, op_id, name, start_ns, input_dims
    FROM cpu_ops
    WHERE sequence_number IS NOT NULL AND coalesce(fwd_thread, 0) = 0
),
_again AS MATERIALIZED (
    SELECT t.*, c.input_dims
    FROM (
        SELECT run_group, run_id, rank, tid, node, last_node, op_id, name, start_ns, dur_ns
        FROM call_tree_no SEMI JOIN (SELECT path FROM _paths WHERE again) USING (path)
    ) t
    JOIN _forward c ON c.run_id = t.run_id AND c.rank = t.rank AND c.op_id = t.op_id AND c.name = t.name
        AND c.tid IS NOT DISTINCT FROM t.tid AND c.start_ns = t.start_ns
),
_before AS (
    SELECT run_id, rank, tid, op_id, name, start_ns
    FROM call_tree_no SEMI JOIN (SELECT path FROM _paths WHERE NOT again) USING (path) SEMI JOIN _again USING (name)
),
_first AS (
    SELECT t.run_id, t.rank, t.name, coalesce(c.input_dims, '') AS shapes, min(t.start_ns) AS first_ns
    FROM _before t
    JOIN cpu_ops c ON c.run_id = t.run_id AND c.rank = t.rank AND c.op_id = t.op_id AND c.name = t.name
        AND c.tid IS NOT DISTINCT FROM t.tid AND c.start_ns = t.start_ns
    GROUP BY ALL
)
SELECT a.* EXCLUDE (op_id)
FROM _again a
JOIN _first f ON f.run_id = a.run_id AND f.rank = a.rank AND f.name = a.name AND f.shapes = coalesce(a.input_dims, '')
WHERE f.first_ns < a.start_ns
QUALIFY outermost(a.node, a.last_node);
