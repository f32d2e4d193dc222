-- Copies are exposed: no kernel overlaps them
--
-- Saving: Time of memcpys and memsets without a concurrent kernel, mean over the GPUs; minus small copies, copies of
-- pageable memory and pages of managed memory, which are separate findings.
-- See: breakdown
-- Try: prefetch the next batch on a stream of its own, from pinned memory, with non_blocking=True.
-- Try for loading: a one-time cost: load the weights straight to the GPU (map_location='cuda', mmap=True, or
-- safetensors with device='cuda'), or through pinned memory; start recording after it.
-- Try for inference: keep what does not change on the GPU; copy the inputs of the next step on a stream of its own,
-- from pinned memory, with non_blocking=True.
-- @use findings, gpu_timeline
-- @needs GPU work: copies or fills without a concurrent kernel
-- @pass gpu
WITH others AS (
    SELECT track, start_ns, end_ns FROM tracked_memcpys WHERE small OR pageable OR managed
),
theirs AS (
    SELECT * FROM run_time_outside('others', 'kernel_times')
),
exposed AS (
    SELECT track, start_ns, end_ns FROM gpu_timeline WHERE copies > 0 AND kernels = 0
),
loading AS (
    SELECT run_id, sum(end_ns - start_ns) AS ns FROM loading_copies GROUP BY run_id
),
own AS (
    SELECT * FROM run_time_covered('exposed')
)
SELECT
    run_group, run_id, exposed_copy_ns - coalesce(t.ns, 0) / gpus AS saving_ns,
    printf('%s of %s of copies and fills per GPU are exposed', ms(exposed_copy_ns), ms(copy_ns))
        || and_part(t.ns / gpus, 'of that is counted in small-copies or pageable-copies'
            || CASE WHEN run_id IN (SELECT run_id FROM tracked_memcpys WHERE managed)
                THEN ' or managed-memory' ELSE '' END
        ) AS evidence,
    o.longest.rank, o.longest.device, o.longest.start_ns, o.longest.end_ns, o.source,
    CASE WHEN 2 * l.ns > exposed_copy_ns * gpus THEN 'loading' END AS situation
FROM run_gpus LEFT JOIN own o USING (run_id) LEFT JOIN theirs t USING (run_id) LEFT JOIN loading l USING (run_id)
WHERE exposed_copy_ns > 0
