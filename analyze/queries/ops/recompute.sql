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
-- @use arithmetic, intervals, launches
-- @needs operators with input shapes (record_shapes=True) and a backward pass (that checkpointing runs some of again)
-- @rows if the backward pass runs operators of the forward pass again
-- @full operators
WITH all_work AS (
    SELECT run_id, rank, sum(dur_ns)::BIGINT AS gpu_ns FROM gpu_work GROUP BY ALL
),
backward_nodes AS (
    SELECT run_id, rank, dur_ns
    FROM launching_ops
    WHERE starts_with(name, 'autograd::engine::evaluate_function') AND dur_ns IS NOT NULL
    QUALIFY coalesce(
        start_ns + dur_ns > previous_end((run_id, rank, pid, tid), start_ns, start_ns + dur_ns), true
    )
),
all_backward AS (
    SELECT run_id, rank, sum(dur_ns)::BIGINT AS cpu_ns FROM backward_nodes GROUP BY ALL
),
threads AS MATERIALIZED (
    SELECT row_number() OVER ()::INTEGER AS thread, * FROM (SELECT DISTINCT run_id, rank, tid FROM recomputed_ops)
),
work AS (
    SELECT t.thread, w.from_ns, w.from_end_ns, w.dur_ns
    FROM work_origins w
    JOIN threads t ON t.run_id = w.run_id AND t.rank = w.rank AND t.tid IS NOT DISTINCT FROM w.from_tid
    WHERE w.from_ns IS NOT NULL
),
ops AS (
    SELECT t.thread, o.*
    FROM recomputed_ops o
    JOIN threads t ON t.run_id = o.run_id AND t.rank = o.rank AND t.tid IS NOT DISTINCT FROM o.tid
),
recomputed_work AS (
    SELECT o.run_id, o.rank, o.tid, o.start_ns, sum(w.dur_ns)::BIGINT AS gpu_ns
    FROM work w ASOF JOIN ops o ON o.thread = w.thread AND w.from_ns >= o.start_ns
    WHERE w.from_ns < o.start_ns + o.dur_ns AND w.from_end_ns <= o.start_ns + o.dur_ns
    GROUP BY o.run_id, o.rank, o.tid, o.start_ns
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
