-- GPU idle: the training loop waits for data
--
-- Saving: Time in the phase `data` in which the rank's GPU is idle (within its span), minus profiler time; mean over
-- the GPUs.
-- Of: idle time
-- See: steps
-- Try: more DataLoader workers, pin_memory, persistent_workers, a cheaper transform, or decoding the data beforehand.
-- @use findings, intervals, phases
-- @needs time in the phase `data`, and GPU work
WITH others AS (
    SELECT * FROM profiler_times UNION ALL SELECT track, start_ns, end_ns FROM set_up_times
),
waiting AS (
    SELECT * FROM intervals_subtract('data_times', 'others')
),
idle AS (
    SELECT * FROM run_time_within('waiting', 'usual_idle')
),
total AS (
    SELECT run_id, count(*) AS ranges, sum(dur_ns) AS ns FROM phase_ranges WHERE phase = 'data' GROUP BY run_id
)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s for data, %s in total on the CPU; each GPU is idle for %s of it',
        counted(t.ranges, 'wait', 'waits'), ms(t.ns), ms(i.ns / gpus)) || host_note AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source
FROM idle i JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
