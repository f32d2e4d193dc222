-- GPU work beside a call tree.
-- @use launch_calls
-- @macro work_nodes(work, t)  GPU work with the operator or range of a call tree that launched it.
-- `work` is gpu_named_work, or what linked_to_ops makes of another table; `t` is call_tree_no ... An External id that
-- several of one thread have is that of the innermost, the last; one that several threads have (traces that somebody
-- merged) is that of the thread which made the launch call. Work without one (a CUDA graph's, and what no operator
-- launched) is that of the innermost node on the thread of its launch call in which the call begins.
-- @column * of work
-- @column node index            Its number in the tree `t`; NULL where the trace links it to none.
CREATE MACRO work_nodes(work, t) AS TABLE
WITH RECURSIVE _work AS MATERIALIZED (
    SELECT * FROM query_table(work)
),
_numbered AS (
    SELECT
        run_id, rank, op_id, max(node) AS node,
        min(coalesce(tid, -9223372036854775807)) <> max(coalesce(tid, -9223372036854775807)) AS several
    FROM (SELECT * FROM query_table(t) WHERE kind IN ('op', 'range') AND op_id > 0)
    SEMI JOIN _work USING (run_id, rank, op_id)
    GROUP BY run_id, rank, op_id
),
_by_thread AS (
    SELECT run_id, rank, op_id, tid, max(node) AS node
    FROM query_table(t) SEMI JOIN (SELECT * FROM _numbered WHERE several) USING (run_id, rank, op_id)
    WHERE kind IN ('op', 'range')
    GROUP BY run_id, rank, op_id, tid
),
_linked AS (
    SELECT w.*, n.node AS own_node, n.several
    FROM _work w
    LEFT JOIN _numbered n ON n.run_id = w.run_id AND n.rank = w.rank AND n.op_id = w.op_id
),
_launching AS (
    SELECT run_id, rank, correlation_id, tid
    FROM launch_calls SEMI JOIN (SELECT * FROM _linked WHERE several) USING (run_id, rank, correlation_id)
),
-- From the last node that began on the thread, up to the first that has not ended.
_unlinked AS (
    SELECT run_id, rank, correlation_id, tid, start_ns AS at_ns
    FROM launch_calls
    SEMI JOIN (SELECT * FROM _linked WHERE own_node IS NULL AND coalesce(op_id, 0) = 0)
        USING (run_id, rank, correlation_id)
),
_began AS (
    SELECT
        run_id, rank, tid, start_ns, max(node) AS node, arg_max({'parent': parent, 'dur_ns': dur_ns}, node) AS last
    FROM query_table(t) SEMI JOIN _unlinked USING (run_id, rank, tid)
    WHERE kind IN ('op', 'range', 'python')
    GROUP BY run_id, rank, tid, start_ns
),
-- Of the tree, the threads of such calls; most recordings have none.
_climbed AS MATERIALIZED (
    SELECT node, parent, start_ns, dur_ns FROM query_table(t) SEMI JOIN _unlinked USING (run_id, rank, tid)
),
_climb AS (
    SELECT c.run_id, c.rank, c.correlation_id, c.at_ns, n.node, last.parent, n.start_ns + last.dur_ns AS end_ns
    FROM _unlinked c
    ASOF JOIN _began n
        ON n.run_id = c.run_id AND n.rank = c.rank AND n.tid = c.tid AND c.at_ns >= n.start_ns
    UNION ALL
    SELECT c.run_id, c.rank, c.correlation_id, c.at_ns, n.node, n.parent, n.start_ns + n.dur_ns
    FROM _climb c JOIN _climbed n ON n.node = c.parent
    WHERE c.at_ns >= c.end_ns
),
_enclosing AS (
    SELECT run_id, rank, correlation_id, node FROM _climb WHERE at_ns < end_ns
)
SELECT
    l.* EXCLUDE (own_node, several),
    CASE WHEN several THEN b.node WHEN own_node IS NOT NULL THEN own_node ELSE e.node END AS node
FROM _linked l
LEFT JOIN _enclosing e ON e.run_id = l.run_id AND e.rank = l.rank AND e.correlation_id = l.correlation_id
    AND l.own_node IS NULL AND coalesce(l.op_id, 0) = 0
LEFT JOIN _launching c ON several AND c.run_id = l.run_id AND c.rank = l.rank AND c.correlation_id = l.correlation_id
LEFT JOIN _by_thread b
    ON several AND b.run_id = l.run_id AND b.rank = l.rank AND b.op_id = l.op_id AND b.tid IS NOT DISTINCT FROM c.tid
    AND c.correlation_id IS NOT NULL;
