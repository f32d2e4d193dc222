-- The GPU waits for the host: nothing is queued
--
-- Saving: The gaps between GPU work for which the next launch call began only after the gap did, over the GPUs; less
-- the parts in which the profiler itself works, and what has a finding of its own: waits for data, gaps that begin in
-- blocking calls, DataParallel's work.
-- See: idle-causes
-- Try: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fewer small operators, no .item() or print
-- of a loss in the loop.
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
-- @needs work on GPUs with gaps between
WITH gaps AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM idle_gaps WHERE host AND NOT blocked
),
others AS (
    SELECT * FROM profiler_times UNION ALL SELECT * FROM data_times UNION ALL SELECT * FROM dataparallel_times
),
left_over AS (
    SELECT * FROM run_time_outside('gaps', 'others')
),
profiled AS (
    SELECT * FROM run_time_within('profiler_times', 'gaps')
)
SELECT
    g.run_group, run_id, h.ns / gpus AS saving_ns,
    printf('%s with nothing queued, the longest %s; %s of %s idle time a GPU',
        counted(h.pieces, 'gap', 'gaps'), ms(h.longest.end_ns - h.longest.start_ns), ms(h.ns / gpus), ms(idle_ns))
        || and_part(p.ns / gpus, 'of it is the profiler''s own, not counted') || host_note AS evidence,
    h.longest.rank, h.longest.device, h.longest.start_ns, h.longest.end_ns, h.source
FROM left_over h JOIN run_gpus g USING (run_id) LEFT JOIN profiled p USING (run_id)
