-- Some steps are much slower than others
--
-- Saving: How much longer than usual (the lower quartile of the steps) steps are that are more than 1.5 times as long,
-- mean over the ranks. Of training steps, else of prefill and of decode steps; four or more of a kind. Not if only the
-- first steps are slow (warm-up).
-- Overlaps: host-wait, blocking-calls, data-wait, lazy-loading, autotuning, compilation, lone-gap, short-kernels
-- See: steps
-- Try: look at what slow steps do that others do not: the operator named, new shapes (recompilation, autotuning),
-- allocation (cudaMalloc), garbage collection, logging, checkpoints, the data of that step.
-- Try for decode: look at what slow steps do that others do not: the operator named, new lengths of sequences
-- (autotuning, kernels that are built for a shape), growth of the KV cache, requests that join the batch.
-- @use compile_log, findings
-- @needs training steps or operators
WITH uneven AS MATERIALIZED (
    SELECT *, end_ns - start_ns AS ns, end_ns - start_ns - usual_ns AS excess_ns
    FROM unevenness
    QUALIFY bool_or(slow AND NOT warm_up) OVER (PARTITION BY run_id, rank, kind)
),
sums AS (
    SELECT
        run_id, kind, count(*) AS steps, count(*) FILTER (slow) AS slow_steps, avg(ns) FILTER (slow) AS slow_ns,
        avg(ns) FILTER (NOT slow) AS usual_ns, sum(excess_ns) FILTER (slow) AS excess_ns,
        arg_max({'rank': rank, 'start_ns': start_ns, 'end_ns': end_ns}, (ns, -start_ns, -rank)) AS longest
    FROM uneven
    GROUP BY run_id, kind
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY sum(uneven.excess_ns) FILTER (slow) DESC, kind) = 1
),
spent AS (
    SELECT
        u.run_id, u.kind, c.name, sum(c.self_ns) FILTER (u.slow) AS slow_ns,
        sum(c.self_ns) FILTER (NOT u.slow) AS usual_ns,
        arg_max({'rank': c.rank, 'start_ns': c.start_ns, 'end_ns': c.start_ns + c.dur_ns}, (c.dur_ns, -c.start_ns))
            FILTER (u.slow) AS longest
    FROM (SELECT * FROM call_tree WHERE kind = 'op') c
    ASOF JOIN uneven u ON u.run_id = c.run_id AND u.rank = c.rank AND c.start_ns >= u.start_ns
    WHERE c.start_ns < u.end_ns
    GROUP BY u.run_id, u.kind, c.name
),
-- The operator that takes longer in slow steps, if it explains a third of the difference.
operators AS (
    SELECT
        run_id, kind, o.name, o.longest,
        coalesce(o.slow_ns, 0) / s.slow_steps - coalesce(o.usual_ns, 0) / nullif(s.steps - s.slow_steps, 0) AS more_ns
    FROM spent o JOIN sums s USING (run_id, kind)
    WHERE more_ns > (s.slow_ns - s.usual_ns) / 3
    QUALIFY row_number() OVER (PARTITION BY run_id, kind ORDER BY more_ns DESC, o.name) = 1
),
ranks AS (
    SELECT run_id, count(DISTINCT rank) AS ranks FROM uneven GROUP BY run_id
)
SELECT
    g.run_group, run_id, s.excess_ns / r.ranks AS saving_ns,
    printf('%d of %d %s steps take %s on average, the others %s',
        s.slow_steps, s.steps, s.kind, ms(s.slow_ns), ms(s.usual_ns))
        || coalesce(printf('; %s more in %s', ms(o.more_ns), o.name), '') || coalesce(n.note, '') AS evidence,
    coalesce(o.longest.rank, s.longest.rank) AS rank, NULL::INTEGER AS device,
    coalesce(o.longest.start_ns, s.longest.start_ns) AS start_ns,
    coalesce(o.longest.end_ns, s.longest.end_ns) AS end_ns, NULL AS source
FROM sums s
JOIN ranks r USING (run_id)
JOIN run_spans g USING (run_id)
LEFT JOIN operators o USING (run_id, kind)
LEFT JOIN recompile_notes n USING (run_id)
