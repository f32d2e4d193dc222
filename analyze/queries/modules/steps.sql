-- Training steps of each rank: their windows, times, waits for data, and number.
-- @use intervals, phases

-- @table step_ranges  a row is the range of a training step on the CPU.
-- @columns run_id, rank, run_group, start_ns, end_ns
-- @column step index              Step number: the collector's if the numbers of recorded and timed steps agree (all,
--                                 or the profiled ones), else the profiler's, else from 0.
-- @column next_ns ns              Start of the step that follows; NULL for the last.
-- @column turn index              Position among the steps of the rank, from 0.
-- @column metrics_step index      The step in step_metrics; NULL if not known.
CREATE TABLE step_ranges AS
WITH _recorded AS (
    SELECT *, start_ns + dur_ns AS end_ns, count(*) OVER (PARTITION BY run_id, rank) AS steps FROM recorded_steps
),
_timed AS (
    SELECT *, bool_or(coalesce(warmup, false)) OVER (PARTITION BY run_id, rank) AS warmed FROM step_metrics
),
_numbered AS (
    SELECT
        run_id, rank, step, row_number() OVER (PARTITION BY run_id, rank ORDER BY step) - 1 AS turn,
        count(*) OVER (PARTITION BY run_id, rank) AS steps
    FROM _timed
    WHERE NOT coalesce(warmup, false)
    UNION ALL
    SELECT
        run_id, rank, step, row_number() OVER (PARTITION BY run_id, rank ORDER BY step) - 1,
        count(*) OVER (PARTITION BY run_id, rank)
    FROM _timed
    WHERE warmed
)
SELECT
    run_id, rank, r.run_group, start_ns, end_ns, coalesce(n.step, number, turn)::INTEGER AS step, next_ns,
    turn, coalesce(n.step, number) AS metrics_step
FROM _recorded r LEFT JOIN _numbered n USING (run_id, rank, turn, steps);

-- @table step_windows  a row is a training step: from the start of its range to the start of the next.
-- The last one ends with its range, or with the last GPU work launched inside it if that is later. In a GPU-only block,
-- the twin of the work says the step that launched it.
-- @columns run_id, rank, run_group
-- @column step index              Step number.
-- @column metrics_step index      The step in step_metrics; NULL if not known.
-- @columns start_ns, end_ns
CREATE TABLE step_windows AS
WITH _last AS (
    SELECT run_id, rank, turn, start_ns, end_ns FROM step_ranges WHERE next_ns IS NULL
),
_launched AS (
    SELECT s.run_id, s.rank, w.start_ns + w.dur_ns AS end_ns
    FROM _last s
    JOIN gpu_work w
        ON w.run_id = s.run_id AND w.rank = s.rank AND w.call_start_ns >= s.start_ns AND w.call_start_ns < s.end_ns
    UNION ALL
    SELECT run_id, rank, t.start_ns + t.dur_ns FROM _last JOIN twins t USING (run_id, rank, turn)
),
_tails AS (
    SELECT run_id, rank, max(end_ns) AS last_ns FROM _launched GROUP BY run_id, rank
)
SELECT
    run_id, rank, s.run_group, step, metrics_step, start_ns,
    coalesce(next_ns, greatest(end_ns, coalesce(last_ns, end_ns))) AS end_ns
FROM step_ranges s LEFT JOIN _tails USING (run_id, rank);

-- @view step_times  a row is a training step of a rank, as recorded and as timed by the collector.
-- @columns run_id, rank, run_group
-- @column step index              Step number.
-- @column warmup bool             Whether it is a step before the profiled ones.
-- @column undisturbed bool        Whether it was timed before the profiler started.
-- @column images count            Images of this rank.
-- @column start_ns ns             Start; NULL if it was not recorded.
-- @column end_ns ns               End; NULL if it was not recorded.
-- @column step_ns ns              Length of the window; the collector's time if it was not recorded.
-- @column timed_step_ns ns        The step, as the collector timed it.
-- @column timed_data_ns ns        Its wait for data, as the collector timed it.
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
-- Profiled steps that cannot be matched to recorded ones would count twice.
WHERE start_ns IS NOT NULL OR warmup OR (run_id, rank) NOT IN (SELECT (run_id, rank) FROM step_ranges);

-- @view step_tracks  a row is a recorded rank: the track of its steps, waits for data and profiler time.
-- @column track index             Its number.
-- @columns run_id, rank
CREATE VIEW step_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank)::INTEGER AS track, run_id, rank
FROM (SELECT DISTINCT run_id, rank FROM step_ranges);

-- @view step_track_windows  a row is a training step on its track.
-- @columns track
-- @column window_id ns            Its start.
-- @columns start_ns, end_ns
CREATE VIEW step_track_windows AS
SELECT track, start_ns AS window_id, start_ns, end_ns FROM step_windows JOIN step_tracks USING (run_id, rank);

-- @view step_track_waits  a row is a wait for data on the track of its rank.
-- @columns track, start_ns, end_ns
CREATE VIEW step_track_waits AS
SELECT track, start_ns, start_ns + dur_ns AS end_ns
FROM phase_ranges JOIN step_tracks USING (run_id, rank)
WHERE phase = 'data';

-- @view step_track_overhead  a row is work of the profiler on the track of its rank.
-- @columns track, start_ns, end_ns
CREATE VIEW step_track_overhead AS
SELECT track, start_ns, start_ns + dur_ns AS end_ns FROM profiler_overhead JOIN step_tracks USING (run_id, rank);

-- @macro step_coverage(t)  the part of each step that intervals cover: a table of disjoint intervals on step_tracks,
--   with a column `what`: data, idle or profiler.
-- @columns run_id, rank
-- @column start_ns ns             Start of the step.
-- @column data_ns ns              Length of the intervals `data` in the step; NULL without any.
-- @column idle_ns ns              Of the intervals `idle`.
-- @column profiler_ns ns          Of the intervals `profiler`.
CREATE MACRO step_coverage(t) AS TABLE
SELECT
    run_id, rank, window_id AS start_ns, sum(end_ns - start_ns) FILTER (what = 'data')::BIGINT AS data_ns,
    sum(end_ns - start_ns) FILTER (what = 'idle')::BIGINT AS idle_ns,
    sum(end_ns - start_ns) FILTER (what = 'profiler')::BIGINT AS profiler_ns
FROM intervals_clip(t, 'step_track_windows') JOIN step_tracks USING (track)
GROUP BY ALL;

-- @view step_waits  a row is a training step with its wait for data.
-- @column * of step_times
-- @column data_ns ns              Time in ranges of the phase `data`, NULL for a rank without any; the collector's time
--                                 if the step was not recorded.
-- @column profiler_ns ns          Time of the profiler itself in the window.
CREATE VIEW step_waits AS
WITH _marks AS (
    SELECT 'data' AS what, * FROM intervals_union('step_track_waits')
    UNION ALL
    SELECT 'profiler', * FROM intervals_union('step_track_overhead')
),
_waiting AS (
    SELECT DISTINCT run_id, rank, true AS waits FROM phase_ranges WHERE phase = 'data'
)
SELECT
    s.*,
    CASE WHEN start_ns IS NULL THEN timed_data_ns WHEN waits THEN coalesce(data_ns, 0) END AS data_ns,
    CASE WHEN start_ns IS NOT NULL THEN coalesce(profiler_ns, 0) END AS profiler_ns
FROM step_times s
LEFT JOIN step_coverage('_marks') USING (run_id, rank, start_ns)
LEFT JOIN _waiting USING (run_id, rank);

-- @view step_counts  a row is a rank with a known number of training steps: the steps in the recording, else the
--   profiled steps timed by the collector, else (under Nsight Compute) the steps of the collector's own training loop.
-- @columns run_id, rank, run_group
-- @column steps count             Training steps.
CREATE VIEW step_counts AS
WITH _recorded AS (
    SELECT run_id, rank, count(*) AS steps FROM step_ranges GROUP BY run_id, rank
),
_timed AS (
    SELECT run_id, rank, count(*) AS steps FROM step_metrics WHERE NOT coalesce(warmup, false) GROUP BY run_id, rank
),
_looped AS (
    SELECT run_id, rank, steps::BIGINT AS steps FROM run_groups WHERE model IS NOT NULL AND status = 'done'
),
_counted AS (
    SELECT run_id, rank, run_group, coalesce(r.steps, t.steps, l.steps) AS counted
    FROM run_groups g
    LEFT JOIN _recorded r USING (run_id, rank)
    LEFT JOIN _timed t USING (run_id, rank)
    LEFT JOIN _looped l USING (run_id, rank)
)
SELECT run_id, rank, run_group, counted AS steps FROM _counted WHERE counted IS NOT NULL;

-- @macro dataset_images(dataset)  images of an epoch by the run's dataset: the number behind the colon of a fake
--   dataset, 50,000 for CIFAR-100, 75,750 for Food-101 (training splits), else NULL.
CREATE MACRO dataset_images(dataset) AS CASE
    WHEN regexp_matches(dataset, '^fake-\w+:\d+$') THEN regexp_extract(dataset, '\d+$')::BIGINT
    WHEN regexp_matches(dataset, '^(fake-)?cifar100(:|$)') THEN 50000
    WHEN regexp_matches(dataset, '^(fake-)?food101(:|$)') THEN 75750
END;

-- @macro epoch_steps(images)  the steps of an epoch with so many images (0: those of the run's dataset); a row is a
--   run.
-- The last step may have fewer images. Under ddp each process has its own batch.
-- @columns run_id
-- @column epoch_images count      Images of an epoch; NULL if not known.
-- @column step_images count       Images of a step over all processes; NULL if not known.
-- @column epoch_steps count       Steps of an epoch; NULL if either is not known.
CREATE MACRO epoch_steps(images) AS TABLE
WITH _sizes AS (
    SELECT
        run_id, CASE WHEN images > 0 THEN images ELSE dataset_images(dataset) END AS epoch_images,
        batch_size * CASE WHEN parallelism = 'ddp' THEN coalesce(world_size, gpus) ELSE 1 END AS step_images
    FROM runs
)
SELECT *, ceil(epoch_images / nullif(step_images, 0))::BIGINT AS epoch_steps FROM _sizes;

-- @macro recorded_times(per, images_asked)  the factor from a sum over a recording to one over the recording, a step or
--   an epoch; a row is a rank.
-- @columns run_id, rank
-- @column recorded count          Recorded training steps.
-- @column steps number            Steps of the result; NULL if not known.
-- @column times x                 Factor for a sum over the recording; NULL if not known.
CREATE MACRO recorded_times(per, images_asked) AS TABLE
WITH _steps AS (
    SELECT
        run_id, rank, s.steps AS recorded,
        CASE per WHEN 'recording' THEN s.steps WHEN 'step' THEN 1 ELSE epoch_steps END AS steps
    FROM run_groups LEFT JOIN step_counts s USING (run_id, rank) LEFT JOIN epoch_steps(images_asked) USING (run_id)
)
SELECT *, CASE per WHEN 'recording' THEN 1 ELSE steps / nullif(recorded, 0) END AS times FROM _steps;
