-- What does each rank of a server do, and which one do the others wait for?
--
-- The role follows the steps: ranks of a prefill server have only prompts, ranks of a decode server only generate. The
-- load compares ranks with one role: ranks of a tensor-parallel group process the same tokens, data-parallel ones the
-- tokens of their own requests. A data-parallel rank without requests has idle steps, in which it takes part in the
-- collectives of the others. Waits are as in `stragglers`: a rank with less load waits for one with more. Each server
-- of a deployment is a run; name all their folders.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column role text               prefill, decode, both, or idle: what its steps do.
-- @column steps count             Steps, without the steps of a draft model.
-- @column idle_steps count        Steps without a request.
-- @column requests number         Mean number of requests of the steps.
-- @column tokens count            Tokens processed.
-- @column load x                  Tokens / mean over the ranks with this role, of all runs in the answer.
-- @column median_step_ns ns       Median length of the steps.
-- @column busy_pct %              Share of the time of the steps with their own GPU work.
-- @column wait_ns ns              Time in which its collectives wait for other ranks; empty if no call is matched.
-- @column blocked_ns ns           Time in which others wait for it and it does not wait itself.
-- @column note text               Why figures are missing.
-- @main run_id, rank, role, steps, idle_steps, requests, tokens, load, median_step_ns, busy_pct, wait_ns, blocked_ns,
--     note
-- @order run_id, rank
-- @use arithmetic, serving_times
-- @answer waits stragglers
-- @needs inference steps: ranges of a server or your own (named prefill and decode), or operators (with shapes)
-- @rows if there are steps of inference
-- @full ranges and launch calls
-- @plot bars y=run_id,rank x=tokens
WITH ranks AS (
    SELECT
        run_group, run_id, rank,
        CASE
            WHEN bool_or(kind = 'mixed') OR bool_or(kind = 'prefill') AND bool_or(kind IN ('decode', 'verify'))
                THEN 'both'
            WHEN bool_or(kind = 'prefill') THEN 'prefill'
            WHEN bool_or(kind IN ('decode', 'verify')) THEN 'decode'
            WHEN bool_and(kind = 'idle') THEN 'idle'
        END AS role,
        count(*) AS steps, count(*) FILTER (kind = 'idle') AS idle_steps, avg(requests) AS requests,
        CASE WHEN bool_and(tokens IS NOT NULL OR kind = 'idle') THEN coalesce(sum(tokens), 0)::BIGINT END AS tokens,
        median(step_ns) AS median_step_ns,
        pct(sum(CASE WHEN idle_ns IS NOT NULL THEN busy_ns END), sum(step_ns)) AS busy_pct,
        CASE WHEN bool_or(lost) THEN 'the times of the kernels of CUDA graphs are lost (see serving)' END AS note
    FROM served_steps
    WHERE kind IS DISTINCT FROM 'draft'
    GROUP BY ALL
),
waiting AS (
    SELECT run_id, rank, sum(w.wait_ns)::BIGINT AS wait_ns, sum(w.blocked_ns)::BIGINT AS blocked_ns
    FROM waits w
    GROUP BY run_id, rank
)
SELECT
    run_group, r.run_id, r.rank, role, steps, idle_steps, requests, tokens,
    tokens / nullif(avg(tokens) OVER (PARTITION BY run_group, role), 0) AS load, median_step_ns, busy_pct,
    w.wait_ns, w.blocked_ns, note
FROM ranks r LEFT JOIN waiting w ON w.run_id = r.run_id AND w.rank = r.rank
