-- @use gpu_tracks, intervals, step_ranges
-- The windows in which GPU time is divided up, per device: window_id, track, step, start_ns, end_ns. For the whole
-- span, one window from the first start to the last end.
CREATE VIEW gpu_windows_span AS
SELECT track AS window_id, track, NULL::INTEGER AS step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM gpu_intervals
GROUP BY track;

-- For steps, the windows of the process, on each of its devices.
CREATE VIEW gpu_windows_step AS
SELECT
    row_number() OVER (ORDER BY t.track, s.start_ns)::INTEGER AS window_id, t.track, s.step, s.start_ns, s.end_ns
FROM step_windows s JOIN gpu_tracks t USING (run_id, rank);

-- GPU work cut at the edges of its windows.
CREATE VIEW gpu_pieces_span AS SELECT track, track AS window_id, class, start_ns, end_ns FROM gpu_intervals;
CREATE VIEW gpu_pieces_step AS
SELECT track, window_id, class, start_ns, end_ns FROM intervals_cut('gpu_intervals', 'gpu_windows_step');
