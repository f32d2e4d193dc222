-- The optimizer launches many small kernels
--
-- Saving: GPU gaps between the kernels that a phase `optimizer` launched, from the first start to the last end, mean
-- over the GPUs. Only for steps that launch more than 10.
-- Overlaps: host-wait, blocking-calls
-- Of: idle time
-- Sure: host time
-- See: phases
-- Try: the fused optimizer (fused=True), or foreach=True; torch.compile of the step.
-- Try for foreach: its foreach kernels are in use: fused=True launches fewer; torch.compile or a CUDA graph of the
-- step.
-- Try for fused: its fused kernels are in use: look for other work in the step, such as clipping of gradients or
-- copies; torch.compile or a CUDA graph of the step.
-- @use findings, gpu_timeline
-- @needs optimizer steps of more than 10 kernels
WITH optimizer_steps AS MATERIALIZED (
    SELECT
        t.track, t.run_id, phase_start_ns, count(*) AS kernels,
        count(*) FILTER (op_name LIKE 'aten::\_foreach\_%' ESCAPE '\') AS foreach_kernels,
        count(*) FILTER (op_name LIKE 'aten::\_fused\_%' ESCAPE '\') AS fused_kernels, min(start_ns) AS start_ns,
        max(start_ns + dur_ns) AS end_ns, sum(dur_ns) AS ns
    FROM gpu_work w
    JOIN gpu_tracks t ON t.run_id = w.run_id AND t.rank = w.rank AND t.device IS NOT DISTINCT FROM w.device
    WHERE phase = 'optimizer' AND kind = 'kernel'
    GROUP BY t.track, t.run_id, phase_start_ns
    HAVING count(*) > 10
),
idle AS (
    SELECT * FROM run_time_within('optimizer_steps', 'usual_idle')
),
summed AS (
    SELECT
        run_id, avg(kernels) AS kernels, sum(ns) AS ns, sum(foreach_kernels) AS foreach_kernels,
        sum(fused_kernels) AS fused_kernels
    FROM optimizer_steps GROUP BY run_id
)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%.0f kernels per step and GPU, %s per GPU in total; the GPU is idle for %s between them',
        kernels, ms(s.ns / gpus), ms(i.ns / gpus)) || host_note AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source,
    CASE WHEN fused_kernels > 0 THEN 'fused' WHEN foreach_kernels > 0 THEN 'foreach' END AS situation
FROM summed s JOIN idle i USING (run_id) JOIN run_gpus g USING (run_id)
