-- The windows in which GPU time is divided up, and GPU work in them: the whole span, or the steps.
-- @use gpu_classes, gpu_tracks, intervals, step_ranges
-- @keep gpu_lengths_span, gpu_windows_span, gpu_windows_step
-- @view gpu_windows_span  a row is a GPU of a process.
-- @column window_id index       Its track's number.
-- @column track index           The track that it stands on.
-- @column step index            NULL.
-- @column start_ns ns           First start.
-- @column end_ns ns             Last end.
CREATE VIEW gpu_windows_span AS
SELECT track AS window_id, track, NULL::INTEGER AS step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM gpu_intervals
GROUP BY track;

-- @view gpu_windows_step  a row is a step on a GPU of its process.
-- @column window_id index       Its number.
-- @column track index           The track that it stands on.
-- @column step index            Step number.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW gpu_windows_step AS
SELECT
    row_number() OVER (ORDER BY t.track, s.start_ns)::INTEGER AS window_id, t.track, s.step, s.start_ns, s.end_ns
FROM step_windows s JOIN gpu_tracks t USING (run_id, rank);

-- @view gpu_pieces_span  a row is GPU work.
-- GPU work cut at the edges of its windows.
-- @column track index           The track that it stands on.
-- @column window_id index       Its window in gpu_windows_span.
-- @column class text            compute, comm or copy.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW gpu_pieces_span AS SELECT track, track AS window_id, class, start_ns, end_ns FROM gpu_intervals;

-- @view gpu_pieces_step  a row is GPU work in a window, cut at its edges.
-- @column track index           The track that it stands on.
-- @column window_id index       Its window in gpu_windows_step.
-- @column class text            compute, comm or copy.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW gpu_pieces_step AS
SELECT track, window_id, class, start_ns, end_ns FROM intervals_cut('gpu_intervals', 'gpu_windows_step');

-- @view gpu_lengths_span  a row is a GPU of a process: how long it does what in the whole recording.
-- @column * of gpu_class_lengths
CREATE VIEW gpu_lengths_span AS SELECT * FROM gpu_class_lengths('gpu_pieces_span');

-- @view gpu_lengths_step  a row is a step on a GPU of its process: how long it does what in it.
-- @column * of gpu_class_lengths
CREATE VIEW gpu_lengths_step AS SELECT * FROM gpu_class_lengths('gpu_pieces_step');
