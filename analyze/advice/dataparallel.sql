-- DataParallel copies the model to every GPU in every step, from one process
--
-- Saving: Broadcast kernels without concurrent compute, of processes that broadcast to several GPUs, plus gaps before
-- the next launch while DataParallel runs on the host (replicate, scatter, the replicas' threads, gather, and their
-- backward), at most the idle time without the profiler, if known; mean over the GPUs. The replicas' own host work is
-- included, so DDP saves less than this bound.
-- See: nccl-share
-- Try: DistributedDataParallel, one process per GPU: each keeps a copy of the model and only gradients are reduced.
-- @use exposed_comm, findings, intervals, time_sums
-- @needs communication kernels (broadcasts of one process to several GPUs)
WITH exposed AS (
    SELECT * FROM run_time_outside('dataparallel_broadcasts', 'compute_times')
),
gaps AS (
    SELECT track, start_ns, end_ns FROM idle_gaps WHERE host AND NOT blocked
),
others AS (
    SELECT * FROM profiler_times UNION ALL SELECT * FROM data_times
    UNION ALL
    SELECT track, start_ns, end_ns FROM set_up_times
),
own AS (
    SELECT * FROM intervals_subtract('dataparallel_times', 'others')
),
idle AS (
    SELECT * FROM run_time_within('own', 'gaps')
),
total AS (
    SELECT run_id, count(*) AS calls, sum(end_ns - start_ns) AS ns FROM dataparallel_broadcasts GROUP BY run_id
)
SELECT
    g.run_group, run_id,
    coalesce(e.ns, 0) / gpus + least(coalesce(i.ns, 0) / gpus, undisturbed_idle_ns) AS saving_ns,
    printf('%s, %s in total (%.1f %% of kernel time); each GPU is idle for %s while DataParallel runs on the host',
        counted(b.calls, 'broadcast', 'broadcasts'), ms(b.ns), 100.0 * b.ns / nullif(k.ns, 0), ms(i.ns / gpus))
        || host_note AS evidence,
    unnest(coalesce(e.longest, i.longest)), CASE WHEN i.ns > e.ns THEN i.source ELSE coalesce(e.source, i.source) END
        AS source
FROM total b
JOIN run_kernel_time k USING (run_id)
JOIN run_gpus g USING (run_id)
LEFT JOIN exposed e USING (run_id)
LEFT JOIN idle i USING (run_id)
