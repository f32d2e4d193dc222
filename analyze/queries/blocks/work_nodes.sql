-- GPU work beside a call tree.
-- @use launch_calls
-- @macro work_nodes(work, t)  GPU work with the operator or range of a call tree that launched it.
-- `work` is gpu_named_work, or what linked_to_ops makes of another table; `t` is call_tree_no ... An External id that
-- several of one thread have is that of the innermost, the last; one that several threads have (traces that somebody
-- merged) is that of the thread which made the launch call.
-- @column * of work
-- @column node index            Its number in the tree `t`; NULL where the trace links it to none.
CREATE MACRO work_nodes(work, t) AS TABLE
WITH _by_thread AS (
    SELECT run_id, rank, op_id, tid, max(node) AS node
    FROM query_table(t)
    WHERE kind IN ('op', 'range') AND op_id > 0
    GROUP BY run_id, rank, op_id, tid
),
_numbered AS (
    SELECT run_id, rank, op_id, any_value(node) AS node, count(*) > 1 AS several
    FROM _by_thread
    GROUP BY run_id, rank, op_id
),
_linked AS (
    SELECT w.*, n.node AS own_node, n.several
    FROM query_table(work) w
    LEFT JOIN _numbered n ON n.run_id = w.run_id AND n.rank = w.rank AND n.op_id = w.op_id
),
_launching AS (
    SELECT run_id, rank, correlation_id, tid
    FROM launch_calls SEMI JOIN (SELECT * FROM _linked WHERE several) USING (run_id, rank, correlation_id)
)
SELECT l.* EXCLUDE (own_node, several), CASE WHEN several THEN b.node ELSE own_node END AS node
FROM _linked l
LEFT JOIN _launching c ON several AND c.run_id = l.run_id AND c.rank = l.rank AND c.correlation_id = l.correlation_id
LEFT JOIN _by_thread b
    ON several AND b.run_id = l.run_id AND b.rank = l.rank AND b.op_id = l.op_id AND b.tid IS NOT DISTINCT FROM c.tid
    AND c.correlation_id IS NOT NULL;
