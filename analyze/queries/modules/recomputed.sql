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

-- @table recomputed_ops  a row is an outermost operator that runs again in the backward pass.
-- @columns run_group, run_id, rank, pid, tid
-- @column name text               Operator.
-- @columns start_ns, end_ns, dur_ns
-- @column input_dims text         Shapes of its inputs, as JSON.
CREATE TABLE recomputed_ops AS
WITH _nodes AS (
    SELECT run_id, rank, pid, tid, start_ns, start_ns + dur_ns AS end_ns
    FROM launching_ops
    WHERE starts_with(name, 'autograd::engine::evaluate_function') AND dur_ns IS NOT NULL
),
_node_threads AS MATERIALIZED (
    SELECT DISTINCT run_id, rank, pid, tid FROM _nodes
),
-- Only with checkpointing have these threads operators with nodes of their own.
_ranks AS (
    SELECT DISTINCT run_id, rank
    FROM _node_threads n
    WHERE EXISTS (
        SELECT 1
        FROM launching_ops o
        WHERE o.run_id = n.run_id AND o.rank = n.rank AND o.pid IS NOT DISTINCT FROM n.pid
            AND o.tid IS NOT DISTINCT FROM n.tid AND o.sequence_number IS NOT NULL AND coalesce(o.fwd_thread, 0) = 0
            AND NOT starts_with(o.name, 'autograd::engine::evaluate_function')
    )
),
_threads AS MATERIALIZED (
    SELECT row_number() OVER () AS thread, * FROM _node_threads SEMI JOIN _ranks USING (run_id, rank)
),
_backward AS (
    SELECT thread, start_ns, end_ns
    FROM _nodes n JOIN _threads t
        ON t.run_id = n.run_id AND t.rank = n.rank AND t.pid IS NOT DISTINCT FROM n.pid
            AND t.tid IS NOT DISTINCT FROM n.tid
    QUALIFY coalesce(end_ns > previous_end(thread, start_ns, end_ns), true)
),
_ops AS NOT MATERIALIZED (
    SELECT
        thread, o.run_group, o.run_id, o.rank, o.pid, o.tid, o.name, o.start_ns, o.start_ns + o.dur_ns AS end_ns,
        o.dur_ns, o.input_dims, o.sequence_number IS NOT NULL AND coalesce(o.fwd_thread, 0) = 0 AS has_own_node
    FROM launching_ops o LEFT JOIN _threads t
        ON t.run_id = o.run_id AND t.rank = o.rank AND t.pid IS NOT DISTINCT FROM o.pid
            AND t.tid IS NOT DISTINCT FROM o.tid
    WHERE o.dur_ns IS NOT NULL AND NOT starts_with(o.name, 'autograd::engine::evaluate_function')
),
_again AS MATERIALIZED (
    SELECT o.*
    FROM (SELECT * FROM _ops WHERE has_own_node AND thread IS NOT NULL) o
    ASOF JOIN _backward b ON b.thread = o.thread AND o.start_ns >= b.start_ns
    WHERE o.end_ns <= b.end_ns
),
_first AS (
    SELECT o.run_id, o.rank, o.name, coalesce(o.input_dims, '') AS shapes, min(o.start_ns) AS first_ns
    FROM (SELECT * FROM _ops SEMI JOIN _again USING (run_id, rank, name)) o
    ASOF LEFT JOIN _backward b ON b.thread = o.thread AND o.start_ns >= b.start_ns
    WHERE coalesce(o.end_ns > b.end_ns, true)
    GROUP BY ALL
)
SELECT a.* EXCLUDE (thread, has_own_node)
FROM _again a
JOIN _first f ON f.run_id = a.run_id AND f.rank = a.rank AND f.name = a.name AND f.shapes = coalesce(a.input_dims, '')
WHERE f.first_ns < a.start_ns
QUALIFY coalesce(a.end_ns > previous_end(a.thread, a.start_ns, a.end_ns), true);

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
WHERE w.from_ns < o.end_ns AND w.from_end_ns <= o.end_ns
GROUP BY o.run_id, o.rank, o.tid, o.start_ns;
