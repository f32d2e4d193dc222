-- Kernels that only turn NCHW into NHWC and back
--
-- Saving: Durations of the kernels whose names say so, over the GPUs.
-- See: kernel-share
-- Try: model.to(memory_format=torch.channels_last), and the same for the input.
-- @use run_gpus, time_sums
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH turning AS (
    SELECT run_id, sum(calls) AS calls, sum(total_ns) AS ns
    FROM kernel_sums
    WHERE regexp_matches(name, '(?i)nchw_?to_?(folded_?)?nhwc|nhwc_?to_?(folded_?)?nchw')
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, ns / gpus AS saving_ns, printf('%d layout kernels take %s', calls::BIGINT, ms(ns)) AS evidence
FROM turning JOIN run_gpus g USING (run_id)
