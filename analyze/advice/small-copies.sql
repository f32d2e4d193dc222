-- Many copies under 64 KiB between host and device
--
-- Saving: Time of such copies without a concurrent kernel, mean over the GPUs. It is latency, not bandwidth.
-- See: concurrency
-- Try: batch them: one tensor instead of many, no .item(), .cpu() or scalar tensors in the loop.
-- @use findings
-- @needs memcpys under 64 KiB between host and device
WITH small AS (
    SELECT * FROM tracked_memcpys WHERE small
),
exposed AS (
    SELECT * FROM run_time_outside('small', 'kernel_times')
),
total AS (
    SELECT run_id, count(*) AS copies, avg(bytes) AS bytes FROM small GROUP BY run_id
)
SELECT
    g.run_group, run_id, e.ns / gpus AS saving_ns,
    printf('%s, %.0f B on average, %s in total without a concurrent kernel',
        counted(copies, 'copy', 'copies'), t.bytes, ms(e.ns)) AS evidence,
    e.longest.rank, e.longest.device, e.longest.start_ns, e.longest.end_ns, e.source
FROM exposed e JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
