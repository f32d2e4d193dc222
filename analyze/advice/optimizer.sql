-- The optimizer launches many small kernels
--
-- Saving: GPU time between the kernels that the phase `optimizer` launched: from the first start to the last end, less
-- their durations, over the GPUs; where a step launches more than 10.
-- See: phases
-- Try: the fused optimizer (fused=True), or foreach=True; torch.compile of the step.
-- @use run_gpus, phases
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH optimizer_steps AS (
    SELECT
        run_id, rank, device, phase_start_ns, count(*) AS kernels, max(start_ns + dur_ns) - min(start_ns) AS span_ns,
        sum(dur_ns) AS ns
    FROM gpu_work_phases
    WHERE phase = 'optimizer' AND kind = 'kernel'
    GROUP BY run_id, rank, device, phase_start_ns
    HAVING count(*) > 10
),
summed AS (
    SELECT run_id, avg(kernels) AS kernels, sum(greatest(0, span_ns - ns)) AS between_ns, sum(ns) AS ns
    FROM optimizer_steps
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, between_ns / gpus AS saving_ns,
    printf('%.0f kernels a step and GPU take %s; %s lie between them',
        kernels, ms(ns / gpus), ms(between_ns / gpus)) AS evidence
FROM summed JOIN run_gpus g USING (run_id)
