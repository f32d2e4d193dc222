-- The GPU is idle while the training loop waits for data
--
-- Saving: The parts of the ranges of the phase `data` in which the GPU of the rank runs nothing (inside its span) and
-- the profiler does not work, over the GPUs.
-- See: steps
-- Try: more DataLoader workers, pin_memory, persistent_workers, a cheaper transform, or data that is decoded
-- beforehand.
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column rank index              Rank of the longest stretch that it is about.
-- @column device index            GPU of that.
-- @column start_ns ns             Its start.
-- @column end_ns ns               Its end.
-- @column source text             Line of the program that most of its time comes from; NULL if not known.
-- @order run_id
-- @use intervals, phases, run_gpus, time_owners
-- @needs time in the phase `data`, and GPU work
WITH waiting AS (
    SELECT * FROM intervals_subtraction('data_times', 'profiler_times')
),
idle AS (
    SELECT * FROM run_time_within('waiting', 'gpu_idle')
),
total AS (
    SELECT run_id, count(*) AS ranges, sum(dur_ns) AS ns FROM phase_ranges WHERE phase = 'data' GROUP BY run_id
)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s for data of %s in all on the CPU; a GPU is idle in %s of it',
        counted(t.ranges, 'wait', 'waits'), ms(t.ns), ms(i.ns / gpus)) || host_note AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source
FROM idle i JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
