-- Where on the CPU GPU work comes from, without a call tree.
-- @use cpu_events, launch_calls
-- @macro work_points(work)  GPU work with the stretch of the CPU that launched it: an operator or range, or the moment
-- of its launch call.
-- `work` is gpu_named_work, or what linked_to_ops makes of another table. An External id that several of one thread
-- have is that of the last to begin; one that several threads have (traces that somebody merged) is that of the thread
-- which made the launch call. Work without one (a CUDA graph's, and what no operator launched) is that of its launch
-- call.
-- @column * of work
-- @column from_tid id           Thread.
-- @column from_ns ns            Start of the operator or range, or of the launch call; NULL where neither is known.
-- @column from_end_ns ns        End of the operator or range; the start of the launch call.
CREATE MACRO work_points(work) AS TABLE
WITH _numbers AS (
    SELECT DISTINCT run_id, rank, op_id FROM query_table(work) WHERE op_id > 0
),
_launching AS (
    SELECT
        run_id, rank, op_id, arg_max(tid, start_ns) AS tid, max(start_ns) AS start_ns,
        arg_max(start_ns + dur_ns, start_ns) AS end_ns,
        min(coalesce(tid, -9223372036854775807)) <> max(coalesce(tid, -9223372036854775807)) AS several
    FROM (SELECT * FROM cpu_events WHERE kind IN ('op', 'range') AND op_id > 0 AND dur_ns IS NOT NULL)
    SEMI JOIN _numbers USING (run_id, rank, op_id)
    GROUP BY run_id, rank, op_id
),
_by_thread AS (
    SELECT
        run_id, rank, op_id, tid, max(start_ns) AS start_ns, arg_max(start_ns + dur_ns, start_ns) AS end_ns
    FROM cpu_events SEMI JOIN (SELECT * FROM _launching WHERE several) USING (run_id, rank, op_id)
    WHERE kind IN ('op', 'range') AND dur_ns IS NOT NULL
    GROUP BY run_id, rank, op_id, tid
),
_pieces AS (
    SELECT
        w.*, l.several IS TRUE OR l.op_id IS NULL AND coalesce(w.op_id, 0) = 0 AS by_call, l.several,
        l.tid AS own_tid, l.start_ns AS own_ns, l.end_ns AS own_end_ns
    FROM query_table(work) w
    LEFT JOIN _launching l ON l.run_id = w.run_id AND l.rank = w.rank AND l.op_id = w.op_id
),
_launches_of AS (
    SELECT run_id, rank, correlation_id, tid, start_ns
    FROM launch_calls SEMI JOIN (SELECT * FROM _pieces WHERE by_call) USING (run_id, rank, correlation_id)
)
SELECT
    l.* EXCLUDE (by_call, several, own_tid, own_ns, own_end_ns),
    CASE WHEN by_call THEN c.tid ELSE own_tid END AS from_tid,
    CASE WHEN several THEN t.start_ns WHEN by_call THEN c.start_ns ELSE own_ns END AS from_ns,
    CASE WHEN several THEN t.end_ns WHEN by_call THEN c.start_ns ELSE own_end_ns END AS from_end_ns
FROM _pieces l
LEFT JOIN _launches_of c ON by_call AND c.run_id = l.run_id AND c.rank = l.rank AND c.correlation_id = l.correlation_id
LEFT JOIN _by_thread t
    ON several AND t.run_id = l.run_id AND t.rank = l.rank AND t.op_id = l.op_id AND t.tid IS NOT DISTINCT FROM c.tid
    AND c.correlation_id IS NOT NULL;
