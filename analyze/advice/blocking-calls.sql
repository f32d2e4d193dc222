-- Blocking CUDA calls leave the GPU idle
--
-- Saving: GPU gaps that begin during a call that waits for the GPU (same rank), minus waits for data and profiler
-- time; mean over the GPUs.
-- Of: idle time
-- See: api-sync
-- Try: no .item(), .cpu(), print(loss) or torch.cuda.synchronize() in every step; read results a step later.
-- @use findings, launches
-- @needs CUDA calls that wait for the GPU, and gaps after them
WITH blocked AS (
    SELECT track, start_ns, end_ns FROM idle_gaps WHERE blocked
),
others AS (
    SELECT * FROM profiler_times UNION ALL SELECT * FROM data_times
),
idle AS (
    SELECT * FROM run_time_outside('blocked', 'others')
),
total AS (
    SELECT run_id, count(*) AS calls, sum(end_ns - start_ns) AS ns FROM blocking_calls GROUP BY run_id
)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s, %s in total on the CPU; %s after them, %s in total',
        counted(t.calls, 'blocking call', 'blocking calls'), ms(t.ns),
        counted(i.pieces, 'GPU gap', 'GPU gaps'), ms(i.ns))
        || host_note AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source
FROM idle i JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
