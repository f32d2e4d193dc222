-- What does activation checkpointing cost: which forward operators run again in the backward pass?
--
-- An operator is recomputed if it runs inside a node of the backward pass (autograd::engine::evaluate_function),
-- records a node of its own there (it has a sequence number and no forward thread, unlike the operators of a gradient
-- formula), and the same operator with the same shapes ran before, outside the backward pass. This covers
-- torch.utils.checkpoint with and without reentrant autograd. Only outermost operators count, with everything below
-- them. Recomputation inside the kernels of torch.compile is not visible in a trace. Second derivatives (create_graph)
-- also record nodes in the backward pass, and look the same if they call an operator of the forward pass.
-- @param group operator|all = operator   What a row is: an operator, or all of a rank.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column name text               Operator, or (all).
-- @column calls count             Recomputed calls.
-- @column cpu_ns ns               CPU time of these calls.
-- @column gpu_ns ns               Durations of the GPU work that they and their children launched.
-- @column gpu_time_pct %          Share of all GPU work of the rank.
-- @column backward_cpu_pct %      Share of the CPU time of the backward pass (its outermost nodes).
-- @main run_id, rank, name, calls, cpu_ns, gpu_ns, gpu_time_pct
-- @order run_id, rank, gpu_ns DESC, cpu_ns DESC, name
-- @use arithmetic, recomputed
-- @needs operators with input shapes (record_shapes=True) and a backward pass (that checkpointing runs some of again)
-- @rows if the backward pass runs operators of the forward pass again
-- @full operators
WITH all_work AS (
    SELECT run_id, rank, sum(dur_ns)::BIGINT AS gpu_ns FROM gpu_work GROUP BY ALL
),
all_backward AS (
    SELECT run_id, rank, sum(dur_ns)::BIGINT AS cpu_ns FROM backward_nodes GROUP BY ALL
),
sums AS (
    SELECT
        a.run_group, a.run_id, a.rank, CASE WHEN '{group}' = 'all' THEN '(all)' ELSE a.name END AS name,
        count(*) AS calls,
        sum(dur_ns)::BIGINT AS cpu_ns, coalesce(sum(o.gpu_ns), 0)::BIGINT AS gpu_ns
    FROM recomputed_ops a LEFT JOIN recomputed_work o
        ON o.run_id = a.run_id AND o.rank = a.rank AND o.tid IS NOT DISTINCT FROM a.tid AND o.start_ns = a.start_ns
    GROUP BY ALL
)
SELECT s.*, pct(s.gpu_ns, w.gpu_ns) AS gpu_time_pct, pct(s.cpu_ns, b.cpu_ns) AS backward_cpu_pct
FROM sums s
LEFT JOIN all_work w ON w.run_id = s.run_id AND w.rank = s.rank
LEFT JOIN all_backward b ON b.run_id = s.run_id AND b.rank = s.rank
