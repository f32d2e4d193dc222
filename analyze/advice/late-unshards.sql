-- Modules of FSDP wait for their parameters to be gathered
--
-- Saving: All_gathers from the moment at which the first use of their module could have begun to their end, with no
-- compute beside them, over the GPUs; less what of it is waiting for another rank.
-- See: fsdp
-- Try: prefetch further ahead (set_modules_to_forward_prefetch and set_modules_to_backward_prefetch; FSDP1:
-- forward_prefetch=True, BackwardPrefetch.BACKWARD_PRE), reshard_after_forward=False where memory allows it, more work
-- for each gathered byte (larger batches, sharding over fewer ranks).
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column rank index              Rank of the longest stretch that it is about.
-- @column device index            GPU of that.
-- @column start_ns ns             Its start.
-- @column end_ns ns               Its end.
-- @column source text             Line of the program that most of its time comes from; NULL if not known.
-- @order run_id
-- @use fsdp, gpu_tracks, run_gpus, time_owners
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
    printf('%d of %s end after their module needs them, which stalls a GPU for %s; in %s of that bytes move and '
        || 'nothing else runs', late, counted(calls, 'all_gather', 'all_gathers'), ms(stall_ns / gpus), ms(o.ns / gpus))
        || CASE
            WHEN module IS NULL THEN ''
            ELSE printf(', most in the %s pass for module %s (%s)', pass, module, ms(m.ns / gpus))
        END AS evidence,
    o.longest.rank, o.longest.device, o.longest.start_ns, o.longest.end_ns, o.source
FROM own o
JOIN counts USING (run_id)
JOIN run_gpus USING (run_id)
LEFT JOIN modules m USING (run_id)
