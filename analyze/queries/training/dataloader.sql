-- Does training wait for data?
--
-- The wait for the next batch in every step: the collector's step_metrics where the run has them, else the data ranges
-- (`data`, or torch's `enumerate(DataLoader)`) that begin in the steps of the trace. A step is bound by data if the
-- wait is at least bound_pct of it; over all steps, if the waits are of their sum. idle_wait_pct is the share of the
-- traced waits in which no GPU of the process had work: the rest was hidden behind work that was queued before.
-- @use arithmetic, gpu_work, intervals, phases, step_ranges
-- @needs the collector's step metrics, or training steps with DataLoader ranges
-- @param window run|step = run    What a row is: all steps of a rank, or each.
-- @param warmup no|yes = no       Whether warm-up steps count.
-- @param bound_pct number = 10    Share of the step from which it is bound by data.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column step index              Step number; empty for all.
-- @column workers count           Data loader processes, where the run says so; 0 loads in the training process itself.
-- @column loader text             multi-process or single-process, from the name of torch's own range.
-- @column steps count             Steps.
-- @column step_ns ns              Their length.
-- @column data_ns ns              Waiting for batches in them.
-- @column data_pct %              Share of the steps.
-- @column wait_p50_ns ns          Median wait of a step.
-- @column wait_p95_ns ns          95th percentile, interpolated.
-- @column wait_max_ns ns          Longest.
-- @column idle_wait_pct %         Share of the data ranges without GPU work; empty where the trace lacks either.
-- @column images_per_s images/s   Images of this rank per second, where the run says how many.
-- @column unbound_images_per_s images/s   The same if no step waited.
-- @column bound bool              Whether it is bound by data.
-- @order run_id, rank, step
WITH trace_steps AS (
    SELECT
        run_group, run_id, rank, step, start_ns, end_ns, end_ns - start_ns AS dur_ns,
        row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns) AS turn
    FROM step_ranges
),
_tracks AS (
    SELECT row_number() OVER (ORDER BY run_id, rank)::INTEGER AS track, run_id, rank
    FROM (SELECT DISTINCT run_id, rank FROM phase_ranges WHERE phase = 'data')
),
_waits AS (
    SELECT track, start_ns, start_ns + dur_ns AS end_ns
    FROM phase_ranges JOIN _tracks USING (run_id, rank)
    WHERE phase = 'data'
),
_working AS (
    SELECT track, start_ns, start_ns + dur_ns AS end_ns FROM gpu_work JOIN _tracks USING (run_id, rank)
),
idle_waits AS (
    SELECT run_id, rank, start_ns, end_ns - start_ns AS dur_ns
    FROM intervals_subtraction('_waits', '_working') JOIN _tracks USING (track)
    WHERE track IN (SELECT track FROM _working)
),
whole_waits AS (
    SELECT run_id, rank, start_ns, end_ns - start_ns AS dur_ns FROM intervals_union('_waits') JOIN _tracks USING (track)
),
placed AS (
    SELECT run_id, rank, start_ns, dur_ns, 0 AS idle_ns FROM whole_waits
    UNION ALL
    SELECT run_id, rank, start_ns, 0, dur_ns FROM idle_waits
),
waits_of AS (
    SELECT s.run_id, s.rank, s.start_ns, sum(p.dur_ns) AS data_ns, sum(p.idle_ns) AS idle_ns
    FROM placed p
    ASOF JOIN trace_steps s ON p.run_id = s.run_id AND p.rank = s.rank AND p.start_ns >= s.start_ns
    WHERE p.start_ns < s.end_ns
    GROUP BY ALL
),
traced AS (
    SELECT
        s.run_group, s.run_id, s.rank, s.step, s.turn, s.dur_ns AS step_ns, coalesce(w.data_ns, 0)::BIGINT AS data_ns,
        CASE WHEN t.track IS NOT NULL THEN w.idle_ns END AS idle_ns
    FROM trace_steps s
    LEFT JOIN waits_of w USING (run_id, rank, start_ns)
    LEFT JOIN (SELECT run_id, rank, track FROM _tracks WHERE track IN (SELECT track FROM _working)) t
        ON t.run_id = s.run_id AND t.rank = s.rank
),
timed AS (
    SELECT
        run_group, run_id, rank, step, coalesce(warmup, false) AS warmup, images,
        round(data_s * 1e9)::BIGINT AS data_ns, round(step_s * 1e9)::BIGINT AS step_ns,
        -- The profiler numbers the steps anew; both know which are the profiled ones, in order.
        row_number() OVER (PARTITION BY run_id, rank, coalesce(warmup, false) ORDER BY step) AS turn
    FROM step_metrics
),
steps AS (
    SELECT
        t.run_group, t.run_id, t.rank, t.step, t.warmup, t.images, t.data_ns, t.step_ns, r.idle_ns,
        r.data_ns AS range_ns
    FROM timed t
    LEFT JOIN traced r ON r.run_id = t.run_id AND r.rank = t.rank AND r.turn = t.turn AND NOT t.warmup
    UNION ALL
    SELECT run_group, run_id, rank, step, false, NULL, data_ns, step_ns, idle_ns, data_ns
    FROM traced
    WHERE (run_id, rank) NOT IN (SELECT (run_id, rank) FROM timed)
),
rows AS (
    SELECT
        run_group, run_id, rank, CASE WHEN '{window}' = 'step' THEN step END AS step, count(*) AS steps,
        sum(step_ns)::BIGINT AS step_ns, sum(data_ns)::BIGINT AS data_ns, pct(sum(data_ns), sum(step_ns)) AS data_pct,
        quantile_cont(data_ns, 0.5) AS wait_p50_ns, quantile_cont(data_ns, 0.95) AS wait_p95_ns,
        max(data_ns) AS wait_max_ns,
        pct(sum(idle_ns), sum(range_ns) FILTER (idle_ns IS NOT NULL)) AS idle_wait_pct,
        CASE WHEN count(images) = count(*) THEN sum(images) END AS images
    FROM steps
    WHERE NOT warmup OR '{warmup}' = 'yes'
    GROUP BY ALL
),
loaders AS (
    SELECT
        run_id, rank,
        CASE WHEN bool_or(name LIKE '%MultiProcessing%') THEN 'multi-process' ELSE 'single-process' END AS loader
    FROM ranges
    WHERE name LIKE 'enumerate(DataLoader)%'
    GROUP BY ALL
)
SELECT
    d.* EXCLUDE (images), r.workers, l.loader,
    images * 1e9 / nullif(step_ns, 0) AS images_per_s,
    images * 1e9 / nullif(step_ns - data_ns, 0) AS unbound_images_per_s, data_pct >= $bound_pct AS bound
FROM rows d
LEFT JOIN loaders l ON l.run_id = d.run_id AND l.rank = d.rank
LEFT JOIN (SELECT run_id, workers FROM runs) r ON r.run_id = d.run_id
