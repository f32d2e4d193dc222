-- Many copies under 64 KiB between host and device
--
-- Saving: The parts of such copies that no kernel runs beside, over the GPUs; their time is latency, not bandwidth.
-- See: concurrency
-- Try: put them together: one tensor instead of many, no .item(), .cpu() or scalar tensors in the loop.
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column rank index              Rank of the longest stretch that it is about.
-- @column device index            GPU of that.
-- @column start_ns ns             Its start.
-- @column end_ns ns               Its end.
-- @column source text             Line of the program that most of its time comes from; NULL if not known.
-- @order run_id
-- @use run_gpus, time_owners
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
    printf('%s of %.0f B on average, %s in all with no kernel beside',
        counted(copies, 'copy', 'copies'), t.bytes, ms(e.ns)) AS evidence,
    e.longest.rank, e.longest.device, e.longest.start_ns, e.longest.end_ns, e.source
FROM exposed e JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
