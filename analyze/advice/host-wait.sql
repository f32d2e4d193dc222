-- The GPU waits for the host: nothing is queued
--
-- Saving: The gaps between GPU work for which the next launch call began only after the gap did, over the GPUs; less
-- the parts in which the profiler itself works, and what has a finding of its own: waits for data, gaps that begin in
-- blocking calls, DataParallel's work.
-- See: idle-causes
-- Try: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fewer small operators, no .item() or print
-- of a loss in the loop.
-- @use run_gpus, time_owners
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH gaps AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM idle_gaps WHERE host AND NOT blocked
),
others AS (
    SELECT * FROM profiler_times UNION ALL SELECT * FROM data_times UNION ALL SELECT * FROM dataparallel_times
),
left_over AS (
    SELECT run_id, count(*) AS gaps, sum(i.end_ns - i.start_ns) AS ns, max(i.end_ns - i.start_ns) AS longest_ns
    FROM intervals_subtraction('gaps', 'others') i JOIN gpu_tracks USING (track)
    GROUP BY run_id
),
profiled AS (
    SELECT run_id, sum(i.end_ns - i.start_ns) AS ns
    FROM intervals_intersection('gaps', 'profiler_times') i JOIN gpu_tracks USING (track)
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, h.ns / gpus AS saving_ns,
    printf('%s with nothing queued, the longest %s; %s of %s idle time a GPU',
        counted(h.gaps, 'gap', 'gaps'), ms(longest_ns), ms(h.ns / gpus), ms(idle_ns))
        || and_part(p.ns / gpus, 'of it is the profiler''s own, not counted') || host_note AS evidence
FROM left_over h JOIN run_gpus g USING (run_id) LEFT JOIN profiled p USING (run_id)
