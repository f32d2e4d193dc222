-- The GPU waits for the host: nothing is queued
--
-- Saving: The gaps between GPU work for which the next launch call began only after the gap did, over the GPUs.
-- See: idle-causes
-- Try: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fewer small operators, no .item() or print
-- of a loss in the loop.
-- @use run_gpus, gpu_gaps
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH gaps AS (
    SELECT run_id, count(*) AS gaps, sum(p.end_ns - p.start_ns) AS ns, max(p.end_ns - p.start_ns) AS longest_ns
    FROM gpu_gaps('gaps_per_device') p JOIN gpu_tracks USING (track)
    WHERE idle_cause(p.start_ns, p.end_ns, p.launch_ns, 30000) = 'host_wait'
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, ns / gpus AS saving_ns,
    printf('%d gaps with nothing queued, the longest %s; %s of %s idle time a GPU',
        gaps, ms(longest_ns), ms(ns / gpus), ms(idle_ns)) AS evidence
FROM gaps JOIN run_gpus g USING (run_id)
