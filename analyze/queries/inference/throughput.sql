-- How many tokens per second does a server serve?
--
-- Tokens over the time of the server, with the time between its steps. A full step has at least 90 % of the largest
-- number of requests. The steady state is from the end of the first full step to the end of the last one: before it the
-- batch fills, after it the batch drains. If full steps warm up (only the first ones are longer than 1.5 times the
-- lower quartile), it begins at the end of the last of these. With fewer than 5 full steps, or unknown numbers of
-- requests, there is no steady state, and the row is of all steps. Warm-up and captures of CUDA graphs before the first
-- step are not counted. Tokens as in `serving`; empty if a step's tokens are not known.
-- @param window steady|all = steady   Steps: of the steady state, or all.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column window text             steady or all.
-- @column steps count             Steps in the window.
-- @column left_out count          Steps before and after it.
-- @column span_ns ns              Length of the window.
-- @column requests number         Mean number of requests of a step that generates, weighted by its time.
-- @column prompt_tokens count     Tokens of prompts processed.
-- @column generated_tokens count  Tokens generated.
-- @column generated_per_s number  Generated tokens per second.
-- @column prompt_per_s number     Prompt tokens per second.
-- @column accepted number         Mean tokens that a request gets from a step that checks drafts; empty unless the
--                                 lengths of caches are known.
-- @column busy_pct %              Share of the span with GPU work of the steps.
-- @column between_pct %           Share of the span between steps: the server schedules, samples or waits for requests.
-- @column note text               Why figures are missing.
-- @main rank, window, steps, span_ns, requests, prompt_tokens, generated_tokens, generated_per_s, prompt_per_s,
--     busy_pct, between_pct, note
-- @order run_id, rank
-- @use arithmetic, intervals, serving_times
-- @needs inference steps: ranges of a server or your own (named prefill and decode), or operators (with shapes)
-- @rows if there are steps of inference
-- @full ranges and launch calls
-- @plot bars y=run_id,rank x=generated_per_s
WITH full_steps AS (
    SELECT *, requests >= 0.9 * max(requests) OVER (PARTITION BY run_id, rank) AS is_full FROM served_steps
),
bounds AS (
    SELECT
        run_id, rank, max(turn) FILTER (is_full) AS last_full,
        coalesce(max(turn) FILTER (is_full AND warm_up), min(turn) FILTER (is_full)) AS first_full,
        max(turn) AS last_turn,
        '{window}' = 'steady' AND coalesce(count(*) FILTER (is_full) >= 5, false) AS is_steady
    FROM full_steps
    GROUP BY run_id, rank
),
-- The step that begins the steady state is done before it.
inside AS (
    SELECT
        s.*, is_steady, last_turn, CASE WHEN is_steady THEN coalesce(f.done_ns, f.range_end_ns) END AS steady_ns
    FROM served_steps s
    JOIN bounds b USING (run_id, rank)
    JOIN served_steps f ON f.run_id = b.run_id AND f.rank = b.rank AND f.turn = coalesce(b.first_full, 0)
    WHERE NOT is_steady OR s.turn > first_full AND s.turn <= last_full
),
windows AS (
    SELECT
        run_id, rank, dense_rank() OVER (ORDER BY run_id, rank)::INTEGER AS track, 0 AS window_id,
        coalesce(any_value(steady_ns), min(coalesce(begin_ns, start_ns))) AS start_ns,
        max(coalesce(done_ns, range_end_ns)) AS end_ns
    FROM inside
    GROUP BY run_id, rank
),
spans AS (
    SELECT w.track, begin_ns AS start_ns, done_ns AS end_ns
    FROM inside JOIN windows w USING (run_id, rank)
    WHERE done_ns > begin_ns
),
own_work AS (
    SELECT w.track, o.start_ns, o.end_ns
    FROM step_work o
    JOIN served_steps s ON s.track = o.track
    JOIN windows w ON w.run_id = s.run_id AND w.rank = s.rank
),
in_span AS (
    SELECT track, start_ns, end_ns FROM intervals_clip('own_work', 'windows')
),
sums AS (
    SELECT
        run_group, run_id, rank, CASE WHEN bool_or(is_steady) THEN 'steady' ELSE 'all' END AS window_kind,
        count(*) AS steps, any_value(last_turn) + 1 - count(*) AS left_out,
        mean_over(CASE WHEN kind IN ('decode', 'mixed', 'verify') THEN requests END, step_ns) AS requests,
        CASE WHEN bool_and(prompt_tokens IS NOT NULL) THEN sum(prompt_tokens)::BIGINT END AS prompt_tokens,
        CASE WHEN bool_and(generated IS NOT NULL) THEN sum(generated)::BIGINT END AS generated_tokens,
        sum(generated) FILTER (kind = 'verify')::DOUBLE
            / nullif(sum(decode_requests) FILTER (kind = 'verify' AND generated IS NOT NULL), 0) AS accepted,
        bool_or(lost) AS lost, bool_or(inside.idle_ns IS NOT NULL) AS on_gpu
    FROM inside
    GROUP BY run_group, run_id, rank
)
SELECT
    run_group, s.run_id, s.rank, window_kind AS "window", steps, left_out, w.end_ns - w.start_ns AS span_ns, requests,
    prompt_tokens, generated_tokens, generated_tokens * 1e9 / nullif(span_ns, 0) AS generated_per_s,
    prompt_tokens * 1e9 / nullif(span_ns, 0) AS prompt_per_s, accepted,
    CASE WHEN on_gpu THEN pct(coalesce(o.covered_ns, 0), span_ns) END AS busy_pct,
    pct(span_ns - p.covered_ns, span_ns) AS between_pct,
    nullif(concat_ws(
        '; ',
        CASE WHEN lost THEN 'the times of the kernels of CUDA graphs are lost (see serving)' END,
        CASE WHEN '{window}' = 'steady' AND window_kind = 'all'
            THEN 'no steady state: fewer than 5 steps with nearly the largest number of requests' END,
        CASE WHEN generated_tokens IS NULL
            THEN 'names of steps do not tell how many tokens they generate' END
    ), '') AS note
FROM sums s
JOIN windows w ON w.run_id = s.run_id AND w.rank = s.rank
LEFT JOIN intervals_coverage('spans') p ON p.track = w.track
LEFT JOIN intervals_coverage('in_span') o ON o.track = w.track
