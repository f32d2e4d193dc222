-- Calls that wait for the GPU leave it with nothing to do
--
-- Saving: GPU gaps that begin during such a call of their rank (it returns when the GPU has run dry), less what is a
-- wait for data or the profiler's, over the GPUs.
-- See: api-sync
-- Try: no .item(), .cpu(), print(loss) or torch.cuda.synchronize() in every step; read results a step later.
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column rank index              Rank of the longest stretch that it is about.
-- @column device index            GPU of that.
-- @column start_ns ns             Its start.
-- @column end_ns ns               Its end.
-- @column source text             Line of the program that most of its time comes from; NULL if not known.
-- @order run_id
-- @use blocking_calls, run_gpus, time_owners
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
    printf('%s of %s in all on the CPU; %s of %s in all after them',
        counted(t.calls, 'blocking call', 'blocking calls'), ms(t.ns),
        counted(i.pieces, 'GPU gap', 'GPU gaps'), ms(i.ns))
        || host_note AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source
FROM idle i JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
