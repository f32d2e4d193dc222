-- Copies use pageable host memory
--
-- Saving: Time of such copies without a concurrent kernel or small copy, mean over the GPUs; small copies are a
-- separate finding.
-- See: memcpy-sync
-- Try: pin_memory=True in the DataLoader (or .pin_memory()), and .to(device, non_blocking=True).
-- Try for loading: a one-time cost: load the weights straight to the GPU (map_location='cuda', mmap=True, or
-- safetensors with device='cuda'), or through pinned memory; start recording after it.
-- Try for inference: pinned buffers for the inputs (.pin_memory()) and .to(device, non_blocking=True); keep what does
-- not change on the GPU.
-- @use arithmetic, findings
-- @needs memcpys of pageable memory
WITH pageable AS (
    SELECT * FROM tracked_memcpys WHERE pageable AND NOT small
),
others AS (
    SELECT * FROM kernel_times UNION ALL SELECT track, start_ns, end_ns FROM tracked_memcpys WHERE small
),
exposed AS (
    SELECT * FROM run_time_outside('pageable', 'others')
),
loading AS (
    SELECT run_id, sum(end_ns - start_ns) AS ns FROM loading_copies WHERE pageable AND NOT small GROUP BY run_id
),
total AS (
    SELECT
        run_id, count(*) AS copies, sum(end_ns - start_ns) AS ns,
        CASE WHEN count(bytes) = count(*) THEN sum(bytes) END AS bytes,
        bytes_per_ns(bytes, end_ns - start_ns) AS gb_per_s
    FROM pageable
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, e.ns / gpus AS saving_ns,
    printf('%s, %s%s in total%s; %s of it exposed',
        counted(copies, 'pageable copy', 'pageable copies'), coalesce(printf('%.1f MB and ', bytes / 1e6), ''),
        ms(t.ns), coalesce(printf(', %.1f GB/s', gb_per_s), ''), ms(e.ns)) AS evidence,
    e.longest.rank, e.longest.device, e.longest.start_ns, e.longest.end_ns, e.source,
    CASE WHEN 2 * l.ns > t.ns THEN 'loading' END AS situation
FROM exposed e
JOIN total t USING (run_id)
JOIN run_gpus g USING (run_id)
LEFT JOIN loading l USING (run_id)
