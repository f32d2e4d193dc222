-- Operators of the forward pass that run again in the backward pass (activation checkpointing).
-- @use intervals, launches

-- @view backward_nodes  a row is an outermost node of the backward pass.
-- @columns run_group, run_id, rank, pid, tid
-- @column name text               Operator.
-- @columns start_ns, end_ns, dur_ns
CREATE VIEW backward_nodes AS
SELECT run_group, run_id, rank, pid, tid, name, start_ns, start_ns + dur_ns AS end_ns, dur_ns
FROM launching_ops
WHERE starts_with(name, 'autograd::engine::evaluate_function') AND dur_ns IS NOT NULL
QUALIFY coalesce(end_ns > previous_end((run_id, rank, pid, tid), start_ns, start_ns + dur_ns), true);

-- @view recomputed_work  a row is one of recomputed_ops with GPU work.
-- @columns run_id, rank, tid, start_ns
-- @column gpu_ns ns               Durations of the GPU work that it and what is below it launched.
CREATE VIEW recomputed_work AS
WITH _threads AS MATERIALIZED (
    SELECT row_number() OVER ()::INTEGER AS thread, * FROM (SELECT DISTINCT run_id, rank, tid FROM recomputed_ops)
),
_work AS (
    SELECT t.thread, w.from_ns, w.from_end_ns, w.dur_ns
    FROM work_origins w
    JOIN _threads t ON t.run_id = w.run_id AND t.rank = w.rank AND t.tid IS NOT DISTINCT FROM w.from_tid
    WHERE w.from_ns IS NOT NULL
),
_ops AS (
    SELECT t.thread, o.*
    FROM recomputed_ops o
    JOIN _threads t ON t.run_id = o.run_id AND t.rank = o.rank AND t.tid IS NOT DISTINCT FROM o.tid
)
SELECT o.run_id, o.rank, o.tid, o.start_ns, sum(w.dur_ns)::BIGINT AS gpu_ns
FROM _work w ASOF JOIN _ops o ON o.thread = w.thread AND w.from_ns >= o.start_ns
WHERE w.from_ns < o.start_ns + o.dur_ns AND w.from_end_ns <= o.start_ns + o.dur_ns
GROUP BY o.run_id, o.rank, o.tid, o.start_ns;
