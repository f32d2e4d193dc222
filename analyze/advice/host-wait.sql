-- GPU idle: the CPU has not launched work (launch-bound)
--
-- Saving: Gaps in GPU work in which the next launch call began after the gap did, mean over the GPUs; minus profiler
-- time, waits for data, gaps after blocking calls and DataParallel's host work, which are separate findings.
-- Of: idle time
-- See: idle-causes
-- Try: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fewer small operators, no .item() or print
-- of a loss in the loop.
-- @use findings
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
    printf('%s, the longest %s; %s of %s of idle time per GPU',
        counted(h.pieces, 'gap', 'gaps'), ms(h.longest.end_ns - h.longest.start_ns), ms(h.ns / gpus), ms(idle_ns))
        || and_part(p.ns / gpus, 'of idle time is profiler time and not counted') || host_note AS evidence,
    h.longest.rank, h.longest.device, h.longest.start_ns, h.longest.end_ns, h.source
FROM left_over h JOIN run_gpus g USING (run_id) LEFT JOIN profiled p USING (run_id)
