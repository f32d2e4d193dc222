-- Calls that wait for the GPU leave it with nothing to do
--
-- Saving: GPU gaps that begin during such a call of their rank (it returns when the GPU has run dry), over the GPUs.
-- See: api-sync
-- Try: no .item(), .cpu(), print(loss) or torch.cuda.synchronize() in every step; read results a step later.
-- @use run_gpus, gpu_gaps
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH blocking AS (
    SELECT run_id, rank, start_ns, start_ns + dur_ns AS end_ns
    FROM cuda_calls
    WHERE api <> 'sync' AND (
        regexp_matches(
            name,
            '^(cudaDeviceSynchronize|cudaThreadSynchronize|cuCtxSynchronize|cudaStreamSynchronize'
            || '|cuStreamSynchronize|cudaEventSynchronize|cuEventSynchronize)'
        )
        OR regexp_matches(name, '^(cudaMemcpy|cuMemcpy)') AND name NOT ILIKE '%async%'
    )
),
gaps AS (
    SELECT t.run_id, t.rank, p.start_ns, p.end_ns - p.start_ns AS ns
    FROM gpu_gaps('gaps_per_device') p JOIN gpu_tracks t USING (track)
),
after_calls AS (
    SELECT p.run_id, count(*) AS gaps, sum(p.ns) AS ns
    FROM gaps p ASOF JOIN blocking b ON b.run_id = p.run_id AND b.rank = p.rank AND p.start_ns >= b.start_ns
    WHERE p.start_ns <= b.end_ns
    GROUP BY p.run_id
),
total AS (
    SELECT run_id, count(*) AS calls, sum(end_ns - start_ns) AS ns FROM blocking GROUP BY run_id
)
SELECT
    g.run_group, run_id, a.ns / gpus AS saving_ns,
    printf('%d blocking calls take %s on the CPU; %d GPU gaps of %s in all begin in them',
        t.calls, ms(t.ns), a.gaps, ms(a.ns)) AS evidence
FROM after_calls a JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
