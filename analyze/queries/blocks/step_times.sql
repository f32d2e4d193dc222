-- @use intervals, phases, profiler_overhead, step_ranges
-- The training steps of each rank with their times, as recorded and as the collector timed them: one row a step.

-- step_ns is the window's length; for a step that was not recorded, what the collector timed, and start_ns and end_ns
-- are NULL. timed_step_ns and timed_data_ns are always the collector's.
CREATE VIEW step_times AS
WITH _timed AS (
    SELECT
        run_id, rank, run_group, step AS metrics_step, coalesce(warmup, false) AS warmup, images,
        round(data_s * 1e9)::BIGINT AS timed_data_ns, round(step_s * 1e9)::BIGINT AS timed_step_ns
    FROM step_metrics
)
SELECT
    run_id, rank, coalesce(w.run_group, t.run_group) AS run_group, coalesce(step, metrics_step) AS step,
    coalesce(warmup, false) AS warmup, images, start_ns, end_ns, coalesce(end_ns - start_ns, timed_step_ns) AS step_ns,
    timed_step_ns, timed_data_ns
FROM step_windows w FULL JOIN _timed t USING (run_id, rank, metrics_step)
-- Profiled steps that cannot be told which of the recorded ones they are would count twice.
WHERE start_ns IS NOT NULL OR warmup OR (run_id, rank) NOT IN (SELECT (run_id, rank) FROM step_ranges);

-- Each recorded rank as a track, with the windows of its steps, its waits for data and the profiler's own work.
CREATE VIEW step_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank)::INTEGER AS track, run_id, rank
FROM (SELECT DISTINCT run_id, rank FROM step_ranges);

CREATE VIEW step_track_windows AS
SELECT track, start_ns AS window_id, start_ns, end_ns FROM step_windows JOIN step_tracks USING (run_id, rank);

CREATE VIEW step_track_waits AS
SELECT track, start_ns, start_ns + dur_ns AS end_ns
FROM phase_ranges JOIN step_tracks USING (run_id, rank)
WHERE phase = 'data';

CREATE VIEW step_track_overhead AS
SELECT track, start_ns, end_ns FROM profiler_overhead JOIN step_tracks USING (run_id, rank);

-- How much of each step the intervals of a table cover: disjoint ones on these tracks, with a column `what`.
CREATE MACRO covered_in_steps(t) AS TABLE
SELECT run_id, rank, window_id AS start_ns, what, sum(end_ns - start_ns)::BIGINT AS covered_ns
FROM intervals_cut(t, 'step_track_windows') JOIN step_tracks USING (track)
GROUP BY ALL;

-- The steps with their waits (data_ns: the ranges of the phase `data` inside the window, NULL for a rank without any;
-- of a step that was not recorded, the collector's) and the part in which the profiler itself worked (profiler_ns).
CREATE VIEW step_waits AS
WITH _marks AS (
    SELECT 'data' AS what, * FROM intervals_union('step_track_waits')
    UNION ALL
    SELECT 'profiler', * FROM intervals_union('step_track_overhead')
),
_covered AS (
    SELECT
        run_id, rank, start_ns, any_value(covered_ns) FILTER (what = 'data') AS data_ns,
        any_value(covered_ns) FILTER (what = 'profiler') AS profiler_ns
    FROM covered_in_steps('_marks')
    GROUP BY run_id, rank, start_ns
),
_waiting AS (
    SELECT DISTINCT run_id, rank, true AS waits FROM phase_ranges WHERE phase = 'data'
)
SELECT
    s.*,
    CASE WHEN start_ns IS NULL THEN timed_data_ns WHEN waits THEN coalesce(data_ns, 0) END AS data_ns,
    CASE WHEN start_ns IS NOT NULL THEN coalesce(profiler_ns, 0) END AS profiler_ns
FROM step_times s LEFT JOIN _covered USING (run_id, rank, start_ns) LEFT JOIN _waiting USING (run_id, rank);
