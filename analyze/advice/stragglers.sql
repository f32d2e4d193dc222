-- Ranks wait for the slowest rank in collectives
--
-- Saving: From a rank's own start to the latest start in a matched collective, at most the duration of its kernel,
-- without concurrent compute or transfer; mean over the GPUs. Needs several ranks.
-- Of: late ranks
-- See: stragglers
-- Try: if its GPU computes meanwhile: balance the work (batch sizes, sequence lengths, experts); if it is idle: look at
-- what its CPU does (data loading, logging, other operators, a slower host).
-- @use compile_log, findings, gpu_timeline, intervals
-- @needs communication kernels (of matched collectives of several ranks)
-- @pass gpu
WITH waits AS MATERIALIZED (
    SELECT * FROM call_waits WHERE NOT pair
),
alone AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM exposed_waits WHERE NOT pair
),
exposed AS (
    SELECT * FROM run_time_within('alone', 'alone')
),
lengths AS (
    SELECT run_id, avg(covered_ns) AS ns, max(covered_ns) AS most_ns
    FROM intervals_coverage('waits') JOIN gpu_tracks USING (track)
    GROUP BY run_id
),
counts AS (
    SELECT run_id, count(DISTINCT call) AS calls FROM waits GROUP BY run_id
)
SELECT
    g.run_group, run_id, e.ns / gpus AS saving_ns,
    printf('in %s each rank waits %s in total (mean over ranks; maximum %s); rank %d is last in %d of %d; '
        || 'others wait %s for it',
        counted(c.calls, 'collective', 'collectives'), ms(l.ns), ms(most_ns), r.rank, r.times_last, r.calls,
        ms(r.blocked_ns)) || coalesce(printf(', while its GPU computes for %s and is idle for %s',
            ms(d.ns - d.idle_ns), ms(d.idle_ns)), '') || coalesce(w.note, '') || coalesce(n.note, '') AS evidence,
    unnest(coalesce(d.longest, e.longest)), d.source
FROM exposed e
JOIN lengths l USING (run_id)
JOIN (SELECT * FROM latest_ranks WHERE NOT pair) r USING (run_id)
JOIN counts c USING (run_id)
LEFT JOIN late_times(false) d USING (run_id)
JOIN run_gpus g USING (run_id)
LEFT JOIN unknown_waits w USING (run_id)
LEFT JOIN (SELECT * FROM recompile_notes WHERE is_waited_for) n USING (run_id)
