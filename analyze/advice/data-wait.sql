-- The GPU is idle while the training loop waits for data
--
-- Saving: The parts of the ranges of the phase `data` in which the GPU of the rank runs nothing (inside its span), over
-- the GPUs.
-- See: steps
-- Try: more DataLoader workers, pin_memory, persistent_workers, a cheaper transform, or data that is decoded
-- beforehand.
-- @use run_gpus, gpu_tracks, intervals, phases
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH gaps AS MATERIALIZED (SELECT * FROM intervals_gaps('gpu_intervals')),
waiting AS (
    SELECT t.track, p.start_ns, p.start_ns + p.dur_ns AS end_ns
    FROM phase_ranges p JOIN gpu_tracks t USING (run_id, rank)
    WHERE p.phase = 'data'
),
idle AS (
    SELECT run_id, sum(i.end_ns - i.start_ns) AS ns
    FROM intervals_intersection('waiting', 'gaps') i JOIN gpu_tracks USING (track)
    GROUP BY run_id
),
total AS (
    SELECT run_id, count(*) AS ranges, sum(end_ns - start_ns) AS ns
    FROM waiting JOIN gpu_tracks USING (track)
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%d waits for data take %s on the CPU; the GPU is idle in %s of it',
        t.ranges // gpus, ms(t.ns / gpus), ms(i.ns / gpus)) AS evidence
FROM idle i JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
