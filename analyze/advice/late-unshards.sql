-- FSDP modules wait for their parameters
--
-- Saving: Time from the moment at which a module could have used its parameters to the end of its all_gather,
-- without concurrent compute, mean over the GPUs; minus waits for other ranks.
-- See: fsdp
-- Try: prefetch earlier (set_modules_to_forward_prefetch and set_modules_to_backward_prefetch; FSDP1:
-- forward_prefetch=True, BackwardPrefetch.BACKWARD_PRE), reshard_after_forward=False where memory allows it, more
-- work per gathered byte (larger batches, sharding over fewer ranks).
-- @use findings, fsdp, gpu_timeline
-- @needs communication kernels (all_gathers that FSDP launched)
WITH own AS (
    SELECT * FROM run_times('late_unshards')
),
counts AS (
    SELECT
        run_id, count(*) AS calls, count(*) FILTER (needed_ns < own_start_ns + dur_ns) AS late,
        sum(least(own_start_ns + dur_ns, used_ns) - needed_ns) FILTER (needed_ns < own_start_ns + dur_ns) AS stall_ns
    FROM fsdp_kernels
    WHERE needed_ns IS NOT NULL
    GROUP BY run_id
),
modules AS (
    SELECT run_id, module, pass, sum(end_ns - start_ns) AS ns
    FROM late_unshards JOIN gpu_tracks USING (track)
    WHERE module IS NOT NULL
    GROUP BY run_id, module, pass
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY sum(end_ns - start_ns) DESC, module, pass) = 1
)
SELECT
    run_group, run_id, o.ns / gpus AS saving_ns,
    printf('%d of %s end after their module needs them; each GPU stalls for %s, of which %s is exposed '
        || 'transfer', late, counted(calls, 'all_gather', 'all_gathers'), ms(stall_ns / gpus), ms(o.ns / gpus))
        || CASE
            WHEN module IS NULL THEN ''
            ELSE printf('; most in the %s pass, for module %s (%s)', pass, module, ms(m.ns / gpus))
        END AS evidence,
    o.longest.rank, o.longest.device, o.longest.start_ns, o.longest.end_ns, o.source
FROM own o
JOIN counts USING (run_id)
JOIN run_gpus USING (run_id)
LEFT JOIN modules m USING (run_id)
