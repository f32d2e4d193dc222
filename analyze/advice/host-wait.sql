-- GPU idle: the CPU has not launched work (launch-bound)
--
-- Saving: Gaps in GPU work in which the next launch call began after the gap did, mean over the GPUs; minus profiler
-- time, waits for data, gaps after blocking calls and DataParallel's host work, which are separate findings.
-- Of: idle time
-- Sure: host time
-- See: idle-causes
-- Try: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fewer small operators, no .item() or print
-- of a loss in the loop.
-- Try for CUDA graphs: less work between replays: prepare the inputs of the next replay while this one runs, capture
-- what is still launched one by one, do not synchronise between replays.
-- Try for compiled: torch.compile(mode='reduce-overhead') adds CUDA graphs; fewer graph breaks and guards (`compiled`);
-- compile the optimizer step, too.
-- Try for decode: CUDA graphs for decode steps (or torch.compile(mode='reduce-overhead')), larger batches, and
-- scheduling the next step while this one runs.
-- Try for inference: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fewer small operators.
-- Try for pipeline: fewer small operators per micro-batch (torch.compile), larger micro-batches; gaps at the start and
-- end of a step are bubbles (`pipeline-bubbles`).
-- @use findings
-- @needs work on GPUs with gaps between
WITH gaps AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM idle_gaps WHERE host AND NOT blocked
),
others AS (
    SELECT * FROM profiler_times UNION ALL SELECT * FROM data_times UNION ALL SELECT * FROM dataparallel_times
    UNION ALL
    SELECT track, start_ns, end_ns FROM set_up_times
),
left_over AS (
    SELECT * FROM run_time_outside('gaps', 'others')
),
profiled AS (
    SELECT * FROM run_time_within('profiler_times', 'gaps')
)
SELECT
    g.run_group, run_id, h.ns / gpus AS saving_ns,
    printf('%s, the longest %s%s; %s of %s of idle time per GPU',
        counted(h.pieces, 'gap', 'gaps'), ms(h.longest.end_ns - h.longest.start_ns),
        -- One that dominates.
        CASE WHEN h.pieces > 1 AND 2 * (h.longest.end_ns - h.longest.start_ns) > h.ns
            THEN printf(' (%.1f %% of them)', 100.0 * (h.longest.end_ns - h.longest.start_ns) / h.ns) ELSE '' END,
        ms(h.ns / gpus), ms(idle_ns))
        || and_part(p.ns / gpus, 'of idle time is profiler time and not counted') || host_note AS evidence,
    h.longest.rank, h.longest.device, h.longest.start_ns, h.longest.end_ns, h.source
FROM left_over h JOIN run_gpus g USING (run_id) LEFT JOIN profiled p USING (run_id)
