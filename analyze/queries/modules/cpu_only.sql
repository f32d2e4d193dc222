-- Time of recordings on CPUs only.
-- @use phases, workload_kinds

-- @view cpu_only_tracks  a row is a rank of a run on CPUs only.
-- @columns track, run_id, rank
CREATE VIEW cpu_only_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank)::INTEGER AS track, run_id, rank
FROM (
    SELECT DISTINCT run_id, rank
    FROM cpu_ops SEMI JOIN (SELECT run_id FROM workload_kinds WHERE kind = 'CPU only') USING (run_id)
);

-- @view cpu_only_operators  a row is an operator of such a rank.
-- @columns run_id, rank, tid
-- @column name text               Operator.
-- @columns start_ns, dur_ns
-- @column self_ns ns              Duration without that of operators and ranges in it.
CREATE VIEW cpu_only_operators AS
SELECT run_id, rank, tid, name, start_ns, dur_ns, self_ns
FROM call_tree SEMI JOIN cpu_only_tracks USING (run_id, rank)
WHERE kind = 'op';

-- @view cpu_only_times  a row is an operator, or a wait for data, on the track of its rank.
-- @columns track, start_ns, end_ns
-- @column operator bool           Whether it is an operator.
CREATE VIEW cpu_only_times AS
SELECT track, start_ns, start_ns + dur_ns AS end_ns, true AS operator
FROM cpu_ops JOIN cpu_only_tracks USING (run_id, rank)
WHERE dur_ns > 0
UNION ALL
SELECT track, start_ns, start_ns + dur_ns, false
FROM phase_ranges JOIN cpu_only_tracks USING (run_id, rank)
WHERE phase = 'data' AND dur_ns > 0;
