-- The first recorded steps are a warm-up
--
-- Saving: How much longer the first steps are than usual (the lower quartile of the steps), where they are more than
-- 1.5 times as long and no later step is; mean over the ranks. Of training steps, else of prefill and of decode steps;
-- four or more of a kind.
-- Overlaps: host-wait, blocking-calls, data-wait, lazy-loading, autotuning, compilation, lone-gap
-- See: steps
-- Try: start recording later: collect run --warmup, or torch.profiler.schedule(wait=..., warmup=...), so that means are
-- those of usual steps.
-- Try for inference: start recording after a few requests of each shape, so that means are those of usual steps.
-- @use findings
-- @needs training steps or operators
WITH slow AS (
    SELECT *, end_ns - start_ns AS ns, end_ns - start_ns - usual_ns AS excess_ns FROM unevenness WHERE warm_up
),
ranks AS (
    SELECT run_id, count(DISTINCT rank) AS ranks FROM unevenness GROUP BY run_id
)
SELECT
    g.run_group, run_id, sum(excess_ns) / any_value(r.ranks) AS saving_ns,
    printf('%s, the longest %s; usual are %s',
        counted(count(*), 'slow step at the start', 'slow steps at the start (of all ranks)'), ms(max(ns)),
        ms(arg_max(usual_ns, ns))) AS evidence,
    unnest(arg_max({'rank': rank, 'device': NULL::INTEGER, 'start_ns': start_ns, 'end_ns': end_ns},
        (ns, -start_ns, -rank))),
    NULL AS source
FROM slow JOIN ranks r USING (run_id) JOIN run_spans g USING (run_id)
GROUP BY g.run_group, run_id
