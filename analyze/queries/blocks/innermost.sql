-- What each thread does at any time: stretches of its time with the innermost event of the call tree that runs then,
-- from the name of a table of `analyze.call_tree`. Nested intervals made flat: an edge is the start of an event, or its
-- end and with that the return to its parent. Where several edges fall together, the deepest start wins, else the
-- shallowest end.
CREATE MACRO innermost(tree) AS TABLE
WITH events AS (
    SELECT n.run_id, n.rank, n.tid, n.node, n.start_ns, n.start_ns + n.dur_ns AS end_ns, p.node AS parent
    FROM query_table(tree) n
    LEFT JOIN query_table(tree) p ON p.node = n.parent AND p.tid = n.tid
    WHERE n.kind <> 'async' AND n.dur_ns > 0
),
edges AS (
    SELECT run_id, rank, tid, start_ns AS at_ns, node AS started, NULL::BIGINT AS ended, NULL::BIGINT AS back_to
    FROM events
    UNION ALL
    SELECT run_id, rank, tid, end_ns, NULL, node, coalesce(parent, -1) FROM events
),
states AS (
    SELECT run_id, rank, tid, at_ns, coalesce(max(started), arg_min(back_to, ended)) AS node
    FROM edges
    GROUP BY run_id, rank, tid, at_ns
),
stretches AS (
    SELECT *, lead(at_ns) OVER (PARTITION BY run_id, rank, tid ORDER BY at_ns) AS end_ns FROM states
)
SELECT s.run_id, s.rank, s.tid, s.node, t.kind, t.name, s.at_ns AS start_ns, s.end_ns
FROM stretches s JOIN query_table(tree) t USING (node);
