-- How long does a request wait for its next token?
--
-- The inter-token latency: a request gets a token when a step that generates is done; the latency is the time since its
-- previous token. That was generated in the previous such step; for a new request, in the step of its prompt. A step
-- that checks drafts gives a request several tokens at once: only the first has a latency. If the number of requests is
-- not known, each step counts as one request. Tokens of warm-up steps (see `throughput`) do not count.
-- @param per rank|requests = rank What a row is: a rank, or its steps with the same number of requests.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column requests number         Requests that generate in the step; empty for per=rank.
-- @column tokens count            Tokens with a known latency.
-- @column avg_ns ns               Mean.
-- @column p50_ns ns               Median.
-- @column p90_ns ns               90 % are not longer.
-- @column p99_ns ns               99 % are not longer.
-- @column max_ns ns               Longest.
-- @column prompts_pct %           Part of the waiting that is in steps with prompts of others.
-- @column between_pct %           Part of the waiting that is between steps.
-- @column note text               Why figures are missing.
-- @main rank, requests, tokens, avg_ns, p50_ns, p90_ns, p99_ns, max_ns, prompts_pct, between_pct, note
-- @order run_id, rank, requests
-- @use arithmetic, serving_times
-- @needs inference steps: ranges of a server or your own (named prefill and decode), or operators (with shapes)
-- @rows if there are two steps that generate
-- @full ranges and launch calls
-- @plot intervals y=run_id,rank,requests x=p50_ns low=p50_ns high=p99_ns
WITH steps AS (
    SELECT
        *, kind IN ('decode', 'mixed', 'verify') AND coalesce(decode_requests > 0, true) AS generates,
        coalesce(decode_requests, 1) AS waiting,
        sum(CASE WHEN kind = 'prefill' THEN step_ns ELSE 0 END) OVER so_far AS prompts_ns,
        sum(step_ns) OVER so_far AS steps_ns
    FROM served_steps
    WHERE done_ns IS NOT NULL
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY done_ns, turn ROWS UNBOUNDED PRECEDING)
),
-- Prompts that are complete before a step got their first token then.
first_tokens AS (
    SELECT
        g.run_id, g.rank, g.turn, p.done_ns AS since_ns, p.prompts_ns AS prompts_before_ns,
        p.steps_ns AS steps_before_ns, p.generated AS requests
    FROM (SELECT * FROM steps WHERE kind = 'prefill' AND generated > 0) p
    ASOF JOIN (SELECT run_id, rank, turn FROM steps WHERE generates) g
        ON g.run_id = p.run_id AND g.rank = p.rank AND p.turn <= g.turn
),
generating AS (
    SELECT
        s.run_group, s.run_id, s.rank, s.turn, s.waiting, s.done_ns, s.prompts_ns, s.steps_ns, s.generated, s.warm_up,
        lag(s.done_ns) OVER own AS since_ns, lag(s.prompts_ns) OVER own AS prompts_before_ns,
        lag(s.steps_ns) OVER own AS steps_before_ns,
        lag(s.waiting + coalesce(CASE WHEN s.kind = 'mixed' THEN s.prompt_requests END, 0)) OVER own AS had,
        coalesce(f.requests, 0) AS added
    FROM steps s
    LEFT JOIN (SELECT run_id, rank, turn, sum(requests) AS requests FROM first_tokens GROUP BY ALL) f
        USING (run_id, rank, turn)
    WHERE s.generates
    WINDOW own AS (PARTITION BY s.run_id, s.rank ORDER BY s.done_ns, s.turn)
),
waits AS (
    SELECT
        run_group, run_id, rank, waiting, done_ns - since_ns AS wait_ns, prompts_ns - prompts_before_ns AS prompts_ns,
        steps_ns - steps_before_ns AS steps_ns, least(greatest(waiting - added, 0), had) AS tokens
    FROM generating
    WHERE since_ns IS NOT NULL AND NOT warm_up
    UNION ALL
    SELECT
        run_group, run_id, rank, waiting, done_ns - f.since_ns, prompts_ns - f.prompts_before_ns,
        steps_ns - f.steps_before_ns, least(f.requests, waiting)
    FROM first_tokens f JOIN generating USING (run_id, rank, turn)
    WHERE NOT warm_up
    UNION ALL
    SELECT run_group, run_id, rank, waiting, 0, 0, 0, generated - waiting
    FROM generating
    WHERE generated > waiting AND since_ns IS NOT NULL AND NOT warm_up
),
keyed AS (
    SELECT *, CASE WHEN '{per}' = 'requests' THEN waiting END AS requests FROM waits WHERE tokens > 0
),
ordered AS (
    SELECT
        *, sum(tokens) OVER (PARTITION BY run_id, rank, requests ORDER BY wait_ns) AS reached,
        sum(tokens) OVER (PARTITION BY run_id, rank, requests) AS all_tokens
    FROM keyed
)
SELECT
    run_group, run_id, rank, requests::DOUBLE AS requests, sum(tokens)::BIGINT AS tokens,
    sum(tokens * wait_ns) / sum(tokens)::DOUBLE AS avg_ns,
    min(wait_ns) FILTER (reached >= 0.5 * all_tokens) AS p50_ns,
    min(wait_ns) FILTER (reached >= 0.9 * all_tokens) AS p90_ns,
    min(wait_ns) FILTER (reached >= 0.99 * all_tokens) AS p99_ns, max(wait_ns) AS max_ns,
    pct(sum(tokens * prompts_ns), sum(tokens * wait_ns)) AS prompts_pct,
    pct(sum(tokens * (wait_ns - steps_ns)), sum(tokens * wait_ns)) AS between_pct, NULL AS note
FROM ordered
GROUP BY run_group, run_id, rank, requests
UNION ALL
SELECT DISTINCT
    run_group, run_id, rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    'the times of the kernels of CUDA graphs are lost (see serving)'
FROM served_steps
WHERE lost
