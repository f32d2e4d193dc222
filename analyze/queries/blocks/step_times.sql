-- The training steps of each rank with their times, as recorded and as the collector timed them: one row a step.
-- @use intervals, phases, profiler_overhead, step_ranges

-- @view step_times  a row is a step of a rank.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column step index            Step number.
-- @column warmup bool           Whether it is a step before the profiled ones.
-- @column undisturbed bool      Whether it is one of those that were timed before the profiler started.
-- @column images count          Images of this rank.
-- @column start_ns ns           Start; NULL where it was not recorded.
-- @column end_ns ns             End; NULL where it was not recorded.
-- @column step_ns ns            Length of the window; of a step that was not recorded, what the collector timed.
-- @column timed_step_ns ns      The step, as the collector timed it.
-- @column timed_data_ns ns      Its wait for data, as the collector timed it.
CREATE VIEW step_times AS
WITH _timed AS (
    SELECT
        run_id, rank, run_group, step AS metrics_step, coalesce(warmup, false) AS warmup,
        coalesce(undisturbed, false) AS undisturbed, images,
        round(data_s * 1e9)::BIGINT AS timed_data_ns, round(step_s * 1e9)::BIGINT AS timed_step_ns
    FROM step_metrics
)
SELECT
    run_id, rank, coalesce(w.run_group, t.run_group) AS run_group, coalesce(step, metrics_step) AS step,
    coalesce(warmup, false) AS warmup, coalesce(undisturbed, false) AS undisturbed, images, start_ns, end_ns,
    coalesce(end_ns - start_ns, timed_step_ns) AS step_ns, timed_step_ns, timed_data_ns
FROM step_windows w FULL JOIN _timed t USING (run_id, rank, metrics_step)
-- Profiled steps that cannot be told which of the recorded ones they are would count twice.
WHERE start_ns IS NOT NULL OR warmup OR (run_id, rank) NOT IN (SELECT (run_id, rank) FROM step_ranges);

-- @view step_tracks  a row is a recorded rank.
-- With the windows of its steps, its waits for data and the profiler's own work, it is a track.
-- @column track index           Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
CREATE VIEW step_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank)::INTEGER AS track, run_id, rank
FROM (SELECT DISTINCT run_id, rank FROM step_ranges);

-- @view step_track_windows  a row is the window of a step.
-- @column track index           The track that it stands on.
-- @column window_id ns          Its start.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW step_track_windows AS
SELECT track, start_ns AS window_id, start_ns, end_ns FROM step_windows JOIN step_tracks USING (run_id, rank);

-- @view step_track_waits  a row is a wait for data on a rank.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW step_track_waits AS
SELECT track, start_ns, start_ns + dur_ns AS end_ns
FROM phase_ranges JOIN step_tracks USING (run_id, rank)
WHERE phase = 'data';

-- @view step_track_overhead  a row is work of the profiler on a rank.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW step_track_overhead AS
SELECT track, start_ns, end_ns FROM profiler_overhead JOIN step_tracks USING (run_id, rank);

-- @macro covered_in_steps(t)  how much of each step the intervals of a table cover: disjoint ones on the step_tracks,
-- with a column `what`.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column start_ns ns           Start of the step.
-- @column what text             As the intervals have it.
-- @column covered_ns ns         Their length in it.
CREATE MACRO covered_in_steps(t) AS TABLE
SELECT run_id, rank, window_id AS start_ns, what, sum(end_ns - start_ns)::BIGINT AS covered_ns
FROM intervals_cut(t, 'step_track_windows') JOIN step_tracks USING (track)
GROUP BY ALL;

-- @view step_waits  a row is a step with its waits.
-- @column * of step_times
-- @column data_ns ns            The ranges of the phase `data` inside the window, NULL for a rank without any; of a
--                               step that was not recorded, the collector's.
-- @column profiler_ns ns        The part in which the profiler itself worked.
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
