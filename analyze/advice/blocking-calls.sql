-- Blocking CUDA calls leave the GPU idle
--
-- Saving: GPU gaps that begin during a call that waits for the GPU (same rank), minus waits for data and profiler time;
-- mean over the GPUs.
-- Of: idle time
-- See: api-sync
-- Try: no .item(), .cpu(), print(loss) or torch.cuda.synchronize() in every step; read results a step later.
-- Try for loading: a one-time cost: copies of weights block until they are done; start recording after it.
-- Try for decode: read the tokens of a step while the next one runs; pinned memory and events in place of .item(),
-- .cpu() and torch.cuda.synchronize().
-- Try for inference: read results while the next batch runs; no .item(), .cpu() or torch.cuda.synchronize() for each
-- batch; inputs from pinned memory with non_blocking=True.
-- @use findings, gpu_timeline, intervals, launches
-- @needs CUDA calls that wait for the GPU, and gaps after them
WITH blocked AS (
    SELECT track, start_ns, end_ns FROM idle_gaps WHERE blocked
),
others AS (
    SELECT * FROM profiler_times UNION ALL SELECT * FROM data_times
    UNION ALL
    SELECT track, start_ns, end_ns FROM set_up_times
),
idle AS (
    SELECT * FROM run_time_outside('blocked', 'others')
),
-- Before the program computes.
loading AS (
    SELECT b.run_id, sum(b.end_ns - b.start_ns) AS ns
    FROM (SELECT t.run_id, t.rank, s.* FROM intervals_subtract('blocked', 'others') s JOIN gpu_tracks t USING (track)) b
    JOIN first_work f USING (run_id, rank)
    WHERE b.end_ns <= f.start_ns
    GROUP BY b.run_id
),
total AS (
    SELECT
        run_id, count(*) AS calls, sum(end_ns - start_ns) AS ns,
        arg_max({'name': name, 'ns': end_ns - start_ns}, (end_ns - start_ns, -start_ns, name)) AS longest
    FROM blocking_calls
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s, %s in total on the CPU, the longest %s (%s); %s after them, %s in total',
        counted(t.calls, 'blocking call', 'blocking calls'), ms(t.ns), ms(t.longest.ns), t.longest.name,
        counted(i.pieces, 'GPU gap', 'GPU gaps'), ms(i.ns))
        || host_note AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source,
    CASE WHEN 2 * l.ns > i.ns THEN 'loading' END AS situation
FROM idle i JOIN total t USING (run_id) JOIN run_gpus g USING (run_id) LEFT JOIN loading l USING (run_id)
