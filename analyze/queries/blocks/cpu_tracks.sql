-- Threads as tracks: a window partitioned by one number is ten times as fast as one by run, rank and thread.
-- @use cpu_events
-- @once cpu_tracks
-- @view cpu_tracks  a row is a thread that runs operators or ranges.
-- @column track index           Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
CREATE VIEW cpu_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track, run_id, rank, tid
FROM (SELECT DISTINCT run_id, rank, tid FROM cpu_events WHERE kind IN ('op', 'range'));

-- @view cpu_intervals  a row is an operator or range on its track.
-- @column track index           The track that it stands on.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column kind text             op or range.
-- @column name text             Name.
-- @column pid id                Process.
-- @column tid id                Thread.
-- @column correlation_id id     Joins a CUDA call and the GPU work that it launched.
-- @column op_id id              The operator that it belongs to, by PyTorch's External id.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW cpu_intervals AS
SELECT t.track, e.* EXCLUDE (dur_ns), e.start_ns + e.dur_ns AS end_ns
FROM cpu_events e JOIN cpu_tracks t ON t.run_id = e.run_id AND t.rank = e.rank AND t.tid IS NOT DISTINCT FROM e.tid
WHERE e.kind IN ('op', 'range');
