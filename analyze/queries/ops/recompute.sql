-- What does activation checkpointing cost: which forward operators run again in the backward pass?
--
-- An operator is recomputed if it runs inside a node of the backward pass (autograd::engine::evaluate_function),
-- records a node of its own there (it has a sequence number and no forward thread, which operators of a gradient
-- formula have not), and the same operator on the same shapes ran before, outside of the backward pass. That holds for
-- torch.utils.checkpoint with and without reentrant autograd. Only the outermost counts, with all below it. What
-- torch.compile recomputes inside its own kernels does not show in a trace; second derivatives (create_graph) record
-- nodes in the backward pass, too, and look the same where they call an operator that the forward pass also calls.
-- @param group operator|all = operator   What a row is: an operator, or all of a rank.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column name text               Operator, or (all).
-- @column calls count             Calls that were recomputed.
-- @column cpu_ns ns               CPU time of them.
-- @column gpu_ns ns               Durations of the GPU work that they and what is below them launched.
-- @column gpu_time_pct %          Share of all GPU work of the rank.
-- @column backward_cpu_pct %      Share of the CPU time of the backward pass (its outermost nodes).
-- @main run_id, rank, name, calls, cpu_ns, gpu_ns, gpu_time_pct
-- @order run_id, rank, gpu_ns DESC, cpu_ns DESC, name
-- @use arithmetic, call_tree_no, gpu_named_work, gpu_work, outermost_nodes, work_nodes
-- @needs activation checkpointing, and operators with input shapes (record_shapes=True)
WITH nodes AS (
    SELECT
        t.run_group, t.run_id, t.rank, t.node, t.last_node, t.name, t.op_id, t.start_ns, t.dur_ns,
        starts_with(t.name, 'autograd::engine::evaluate_function') AS is_backward,
        c.sequence_number IS NOT NULL AND coalesce(c.fwd_thread, 0) = 0 AS is_forward, c.input_dims
    FROM call_tree_no t
    JOIN cpu_ops c ON c.run_id = t.run_id AND c.rank = t.rank AND c.op_id = t.op_id AND c.name = t.name
        AND c.tid IS NOT DISTINCT FROM t.tid AND c.start_ns = t.start_ns
    WHERE t.kind = 'op'
),
backward AS (
    SELECT run_id, rank, node, last_node, dur_ns
    FROM nodes
    WHERE is_backward
    QUALIFY outermost(node, last_node)
),
placed AS (
    SELECT n.*, coalesce(n.node <= b.last_node, false) AS again
    FROM nodes n ASOF LEFT JOIN backward b ON n.node >= b.node
    WHERE NOT n.is_backward
),
first AS (
    SELECT run_id, rank, name, coalesce(input_dims, '') AS shapes, min(start_ns) AS first_ns
    FROM placed
    WHERE NOT again
    GROUP BY ALL
),
again AS (
    SELECT p.*
    FROM placed p
    JOIN first f ON f.run_id = p.run_id AND f.rank = p.rank AND f.name = p.name
        AND f.shapes = coalesce(p.input_dims, '')
    WHERE p.again AND p.is_forward AND f.first_ns < p.start_ns
    QUALIFY outermost(p.node, p.last_node)
),
work AS (
    SELECT node, sum(dur_ns)::BIGINT AS gpu_ns
    FROM work_nodes('gpu_named_work', 'call_tree_no')
    WHERE node IS NOT NULL
    GROUP BY node
),
owned AS (
    SELECT a.node AS call, sum(w.gpu_ns)::BIGINT AS gpu_ns
    FROM work w ASOF JOIN again a ON w.node >= a.node
    WHERE w.node <= a.last_node
    GROUP BY a.node
),
all_work AS (
    SELECT run_id, rank, sum(dur_ns)::BIGINT AS gpu_ns FROM gpu_work GROUP BY ALL
),
all_backward AS (
    SELECT run_id, rank, sum(dur_ns)::BIGINT AS cpu_ns FROM backward GROUP BY ALL
),
sums AS (
    SELECT
        run_group, run_id, rank, CASE WHEN '{group}' = 'all' THEN '(all)' ELSE name END AS name, count(*) AS calls,
        sum(dur_ns)::BIGINT AS cpu_ns, coalesce(sum(o.gpu_ns), 0)::BIGINT AS gpu_ns
    FROM again a LEFT JOIN owned o ON o.call = a.node
    GROUP BY ALL
)
SELECT s.*, pct(s.gpu_ns, w.gpu_ns) AS gpu_time_pct, pct(s.cpu_ns, b.cpu_ns) AS backward_cpu_pct
FROM sums s
LEFT JOIN all_work w ON w.run_id = s.run_id AND w.rank = s.rank
LEFT JOIN all_backward b ON b.run_id = s.run_id AND b.rank = s.rank
