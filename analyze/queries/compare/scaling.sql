-- How much faster does training get with more GPUs?
--
-- Throughput is the sum over ranks of images / time of the profiled steps (as in `steps`). Images are the collector's,
-- else batch_size per step. speed-up(n) = throughput(n) / throughput(1); efficiency = speed-up / n. Both are empty
-- without a run of the same workload on one GPU (same profiler, model, precision, dataset, image size, optimizer, data
-- loader and the like). Strong scaling keeps the total batch, weak scaling the batch per GPU; batch_size counts per
-- process under ddp, else in total. The one-GPU run is one with the same parallelism, else any. Runs of the same
-- workload are averaged.
-- @param kind auto|strong|weak = auto   Which batch is kept constant; auto shows each for which there is a run on one
--                                 GPU.
-- @column kind text               strong or weak; with auto, empty for runs without a one-GPU run to compare with.
-- @column profiler text           Profiler under which it was timed.
-- @column model text              Model.
-- @column precision text          Precision.
-- @column dataset text            Data source.
-- @column image_size index        Side of the square input (pixels).
-- @column parallelism text        none, dp or ddp.
-- @column batch_size number       The batch that is kept constant: images per step over all GPUs (strong) or per GPU
--                                 (weak).
-- @column gpus index              GPUs that train.
-- @column runs count              Runs averaged.
-- @column images_per_s images/s   Throughput.
-- @column speedup x               Throughput / throughput on one GPU.
-- @column efficiency_pct %        Speed-up / GPUs.
-- @main kind, model, batch_size, gpus, images_per_s, speedup, efficiency_pct
-- @order kind NULLS LAST, model, precision, dataset, image_size, profiler, batch_size, gpus, parallelism
-- @use gpu_timeline, steps, workload_keys
-- @needs step times: the collector's step metrics, or training steps in the traces
-- @pass all
-- @plot lines x=gpus y=speedup color=kind,profiler,model,precision,parallelism,batch_size ideal=x
WITH timed AS (
    SELECT
        run_id, rank, CASE WHEN count(images) = count(*) THEN sum(images) END AS images, count(*) AS steps,
        sum(step_ns)::DOUBLE AS ns
    FROM step_times
    WHERE NOT warmup AND step_ns > 0
    GROUP BY run_id, rank
),
by_run AS (
    SELECT
        t.run_id,
        avg(coalesce(images, r.batch_size * t.steps) / nullif(ns, 0) * 1e9) AS rank_images_per_s,
        sum(coalesce(images, r.batch_size * t.steps) / nullif(ns, 0) * 1e9) AS images_per_s
    FROM timed t JOIN runs r USING (run_id)
    GROUP BY t.run_id
),
used AS (
    -- Runs that do not say: the recorded GPUs. A run on the CPU counts as one device.
    SELECT r.run_id, CASE WHEN coalesce(r.gpus, t.gpus) IS NOT NULL THEN greatest(coalesce(r.gpus, t.gpus), 1) END AS n
    FROM runs r LEFT JOIN (SELECT run_id, count(*) AS gpus FROM gpu_tracks GROUP BY run_id) t USING (run_id)
),
counted AS (
    SELECT
        r.*, k.options, u.n,
        -- Under ddp every rank is one GPU; ranks without a recording count as the mean of the others.
        CASE WHEN r.parallelism = 'ddp' THEN rank_images_per_s * u.n ELSE images_per_s END AS images_per_s
    FROM by_run JOIN runs r USING (run_id) JOIN used u USING (run_id) JOIN workload_keys k USING (run_id)
),
named AS (
    SELECT
        *, CASE WHEN parallelism = 'ddp' THEN batch_size * n ELSE batch_size END AS total_batch,
        CASE WHEN parallelism = 'ddp' THEN batch_size::DOUBLE ELSE batch_size::DOUBLE / n END AS gpu_batch,
        md5(concat_ws('|',
            coalesce(run_group, -1), coalesce(profiler, ''), coalesce(gpu_name, ''), options)) AS workload
    FROM counted
),
configured AS (
    SELECT
        run_group, workload, profiler, model, precision, dataset, image_size,
        coalesce(parallelism, 'none') AS parallelism, total_batch, gpu_batch, n,
        count(*) AS runs, avg(images_per_s) AS images_per_s
    FROM named
    GROUP BY ALL
),
by_kind AS (
    SELECT 'strong' AS kind, total_batch::DOUBLE AS group_batch, * FROM configured
    UNION ALL
    SELECT 'weak', gpu_batch, * FROM configured
),
judged AS (
    SELECT
        *,
        coalesce(
            max(images_per_s) FILTER (n = 1) OVER (PARTITION BY kind, workload, group_batch, parallelism),
            -- Else a one-GPU run without parallelism, else any.
            max(images_per_s) FILTER (n = 1 AND parallelism = 'none') OVER (PARTITION BY kind, workload, group_batch),
            max(images_per_s) FILTER (n = 1) OVER (PARTITION BY kind, workload, group_batch)
        ) AS one_gpu,
        max(n) OVER (PARTITION BY kind, workload, group_batch) > 1 AS scales
    FROM by_kind
),
shown AS (
    SELECT * FROM judged WHERE kind = '{kind}' OR '{kind}' = 'auto' AND one_gpu IS NOT NULL AND scales
    UNION ALL
    -- Runs that neither kind shows: once, without a kind.
    SELECT * REPLACE (NULL AS kind, NULL AS one_gpu) FROM judged j
    WHERE '{kind}' = 'auto' AND kind = 'strong' AND NOT (one_gpu IS NOT NULL AND scales) AND NOT EXISTS (
        SELECT 1 FROM judged w
        WHERE w.kind = 'weak' AND w.workload = j.workload AND w.gpu_batch IS NOT DISTINCT FROM j.gpu_batch
            AND w.one_gpu IS NOT NULL AND w.scales
    )
)
SELECT
    run_group, kind, profiler, model, precision, dataset, image_size, parallelism, group_batch AS batch_size, n AS gpus,
    runs, images_per_s, images_per_s / nullif(one_gpu, 0) AS speedup,
    100 * images_per_s / nullif(one_gpu, 0) / n AS efficiency_pct
FROM shown
