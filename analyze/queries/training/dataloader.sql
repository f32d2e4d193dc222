-- Does training wait for data?
--
-- The wait for the next batch in each step. Steps and waits as in `steps`: data ranges (`data`, or torch's
-- `enumerate(DataLoader)`) within the recorded steps, else the collector's times. A step is bound by data if the wait
-- is at least bound_pct of it; a rank, if the waits are at least bound_pct of its steps. idle_wait_pct is the share of
-- the recorded waits in which no GPU of the process had work; the rest is hidden behind queued work.
-- @param window run|step = run    What a row is: all steps of a rank, or one step.
-- @param warmup no|yes = no       Whether warm-up steps count.
-- @param bound_pct number[0..100] = 10   Share of the step (%) from which it is bound by data.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column step index              Step number; empty for window=run.
-- @column workers count           Data loader processes, if the run says so; 0: batches are loaded in the training
--                                 process.
-- @column loader text             multi-process or single-process, by the name of torch's range.
-- @column steps count             Steps.
-- @column step_ns ns              Sum of their lengths.
-- @column data_ns ns              Waiting for batches; empty unless known for all steps.
-- @column data_pct %              Share of the steps whose wait is known.
-- @column wait_p50_ns ns          Median wait of a step.
-- @column wait_p95_ns ns          95th percentile, interpolated.
-- @column wait_max_ns ns          Longest wait.
-- @column idle_wait_pct %         Share of the data ranges without GPU work; empty if the trace lacks either.
-- @column profiler_ns ns          Part of the data ranges in which the profiler itself worked on the CPU.
-- @column images_per_s images/s   Images of this rank per second; empty if the run does not say how many.
-- @column unbound_images_per_s images/s   The same without the waits in which no GPU of the process had work (on a CPU:
--                                 without all waits); empty unless they are known for all steps.
-- @column bound bool              Whether it is bound by data.
-- @main run_id, rank, step, workers, steps, step_ns, data_ns, data_pct, images_per_s, bound
-- @order run_id, rank, step
-- @use arithmetic, intervals, steps
-- @needs training steps (with DataLoader ranges), or the collector's step metrics
-- @full ranges
-- @plot bars y=run_id,rank,step x=data_pct
-- @drill step breakdown window=step step={step} rank={rank}
-- @drill rank dataloader window=step rank={rank}
WITH waits AS (
    SELECT * FROM step_track_waits
),
waiting AS (
    SELECT * FROM intervals_union('waits')
),
-- GPU work that overlaps a wait: a small part of all.
working AS (
    SELECT w.*
    FROM (
        SELECT track, start_ns, start_ns + greatest(coalesce(dur_ns, 0), 0) AS end_ns
        FROM gpu_work JOIN step_tracks USING (run_id, rank)
    ) w
    ASOF JOIN waiting d ON w.track = d.track AND w.start_ns < d.end_ns
    WHERE d.start_ns < w.end_ns
),
marks AS (
    SELECT 'idle' AS what, * FROM intervals_subtract('waiting', 'working')
    UNION ALL
    SELECT 'profiler', * FROM intervals_intersect('waiting', 'step_track_overhead')
),
worked AS (
    SELECT DISTINCT run_id, rank, true AS works FROM gpu_spans
),
steps AS (
    -- start_ns is NULL for steps that were not recorded.
    SELECT
        s.* EXCLUDE (profiler_ns),
        CASE WHEN start_ns IS NOT NULL AND s.data_ns IS NOT NULL AND works THEN coalesce(idle_ns, 0) END AS idle_ns,
        CASE WHEN start_ns IS NOT NULL AND s.data_ns IS NOT NULL THEN coalesce(c.profiler_ns, 0) END AS profiler_ns
    FROM step_waits s
    LEFT JOIN step_coverage('marks') c USING (run_id, rank, start_ns)
    LEFT JOIN worked USING (run_id, rank)
),
losses AS (
    SELECT
        s.*,
        CASE
            WHEN idle_ns IS NOT NULL THEN idle_ns
            -- Of steps that were not recorded, nothing says what a GPU did meanwhile.
            WHEN start_ns IS NOT NULL OR device_type = 'cpu' THEN data_ns
        END AS lost_ns
    FROM steps s LEFT JOIN (SELECT run_id, device_type FROM runs) r ON r.run_id = s.run_id
),
rows AS (
    SELECT
        run_group, run_id, rank, CASE WHEN '{window}' = 'step' THEN step END AS step, count(*) AS steps,
        sum(step_ns)::BIGINT AS step_ns,
        CASE WHEN count(data_ns) = count(*) THEN sum(data_ns)::BIGINT END AS data_ns,
        pct(sum(data_ns), sum(step_ns) FILTER (data_ns IS NOT NULL)) AS data_pct,
        quantile_cont(data_ns, 0.5) AS wait_p50_ns, quantile_cont(data_ns, 0.95) AS wait_p95_ns,
        max(data_ns) AS wait_max_ns,
        pct(sum(idle_ns), sum(data_ns) FILTER (idle_ns IS NOT NULL)) AS idle_wait_pct,
        sum(profiler_ns)::BIGINT AS profiler_ns,
        CASE WHEN count(lost_ns) = count(*) THEN sum(lost_ns) END AS lost_ns,
        CASE WHEN count(images) = count(*) THEN sum(images) END AS images
    FROM losses
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
    d.* EXCLUDE (images, lost_ns), r.workers, l.loader,
    images * 1e9 / nullif(step_ns, 0) AS images_per_s,
    images * 1e9 / nullif(step_ns - lost_ns, 0) AS unbound_images_per_s, data_pct >= $bound_pct AS bound
FROM rows d
LEFT JOIN loaders l ON l.run_id = d.run_id AND l.rank = d.rank
LEFT JOIN (SELECT run_id, workers FROM runs) r ON r.run_id = d.run_id
