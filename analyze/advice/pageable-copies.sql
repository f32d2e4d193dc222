-- Copies from or to pageable memory
--
-- Saving: The parts of such copies that no kernel runs beside, over the GPUs.
-- See: memcpy-sync
-- Try: pin_memory=True in the DataLoader (or .pin_memory()), and .to(device, non_blocking=True).
-- @use run_gpus, gpu_tracks, intervals
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH pageable AS (
    SELECT t.track, m.start_ns, m.start_ns + m.dur_ns AS end_ns, bytes
    FROM memcpys m
    JOIN gpu_tracks t ON t.run_id = m.run_id AND t.rank = m.rank AND t.device IS NOT DISTINCT FROM m.device
    WHERE 'Pageable' IN (src_memory, dst_memory)
),
kernel_times AS (
    SELECT * FROM gpu_intervals WHERE kind = 'kernel'
),
exposed AS (
    SELECT run_id, sum(e.end_ns - e.start_ns) AS ns
    FROM intervals_subtraction('pageable', 'kernel_times') e JOIN gpu_tracks USING (track)
    GROUP BY run_id
),
total AS (
    SELECT run_id, count(*) AS copies, sum(bytes) AS bytes, sum(end_ns - start_ns) AS ns
    FROM pageable JOIN gpu_tracks USING (track)
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, e.ns / gpus AS saving_ns,
    printf('%d pageable copies of %.1f MB take %s at %.1f GB/s; %s of it with no kernel beside it',
        copies, bytes / 1e6, ms(t.ns), bytes / nullif(t.ns, 0), ms(e.ns)) AS evidence
FROM exposed e JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
