-- @use cpu_events
-- Each thread that runs operators or ranges as a track, and these on it: a window partitioned by one number is ten
-- times as fast as one by run, rank and thread.
CREATE VIEW cpu_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track, run_id, rank, tid
FROM (SELECT DISTINCT run_id, rank, tid FROM cpu_events WHERE kind IN ('op', 'range'));

CREATE VIEW cpu_intervals AS
SELECT t.track, e.* EXCLUDE (dur_ns), e.start_ns + e.dur_ns AS end_ns
FROM cpu_events e JOIN cpu_tracks t ON t.run_id = e.run_id AND t.rank = e.rank AND t.tid IS NOT DISTINCT FROM e.tid
WHERE e.kind IN ('op', 'range');
