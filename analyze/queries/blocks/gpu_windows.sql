-- @use gpu_tracks, intervals, step_ranges
-- The windows in which GPU time is divided up, per device: window_id, track, step, start_ns, end_ns. For the whole
-- span, one window from the first start to the last end.
CREATE VIEW gpu_windows_span AS
SELECT track AS window_id, track, NULL::INTEGER AS step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM gpu_intervals
GROUP BY track;

-- For steps, from the start of a step on the CPU to the start of the next; the last one ends with its own range or with
-- the last work that was launched in it, whichever is later.
CREATE VIEW gpu_windows_step AS
WITH tails AS (
    SELECT s.run_id, s.rank, max(w.start_ns + w.dur_ns) AS last_ns
    FROM step_ranges s
    JOIN cuda_calls c ON c.run_id = s.run_id AND c.rank = s.rank AND c.start_ns >= s.start_ns AND c.start_ns < s.end_ns
    JOIN gpu_work w ON w.run_id = c.run_id AND w.rank = c.rank AND w.correlation_id = c.correlation_id
    WHERE s.next_ns IS NULL AND c.api <> 'sync'
    GROUP BY s.run_id, s.rank
)
SELECT
    row_number() OVER (ORDER BY t.track, s.start_ns)::INTEGER AS window_id, t.track, s.step, s.start_ns,
    coalesce(s.next_ns, greatest(s.end_ns, coalesce(e.last_ns, s.end_ns))) AS end_ns
FROM step_ranges s
JOIN gpu_tracks t USING (run_id, rank)
LEFT JOIN tails e USING (run_id, rank);

-- GPU work cut at the edges of its windows.
CREATE VIEW gpu_pieces_span AS SELECT track, track AS window_id, class, start_ns, end_ns FROM gpu_intervals;
CREATE VIEW gpu_pieces_step AS
SELECT track, window_id, class, start_ns, end_ns FROM intervals_cut('gpu_intervals', 'gpu_windows_step');
