-- DataParallel sends the model to every GPU in every step
--
-- Saving: Durations of the broadcast kernels of processes that drive several GPUs, over the GPUs.
-- See: nccl-share
-- Try: DistributedDataParallel, one process a GPU: it keeps a copy of the model on each and only reduces gradients.
-- @use run_gpus, time_sums
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH processes AS (
    SELECT run_id, rank FROM gpu_tracks GROUP BY run_id, rank HAVING count(*) > 1
),
broadcasts AS (
    SELECT run_id, sum(calls) AS calls, sum(total_ns) AS ns
    FROM kernel_sums JOIN processes USING (run_id, rank) JOIN kernel_names USING (run_id, name)
    WHERE collective = 'broadcast'
    GROUP BY run_id
),
kernel_time AS (
    SELECT run_id, sum(total_ns) AS ns FROM kernel_sums GROUP BY run_id
)
SELECT
    g.run_group, run_id, b.ns / gpus AS saving_ns,
    printf('%d broadcasts take %s, %.1f %% of kernel time, in one process with several GPUs',
        b.calls::BIGINT, ms(b.ns), 100.0 * b.ns / k.ns) AS evidence
FROM broadcasts b JOIN kernel_time k USING (run_id) JOIN run_gpus g USING (run_id)
