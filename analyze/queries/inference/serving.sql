-- What do the prefill and decode steps of inference cost?
--
-- A step is a range of vLLM (execute_context_1(983)_generation_0(0)), of SGLang (step[DECODE bs=4]), or of your own
-- program with a name that begins with prefill or decode. Without such ranges, a step is a pass over the model: from a
-- lookup in the first embedding table to the next one; prefill if the sequences have more than one new token.
-- Recordings with a backward pass have no such steps. A step ends when its range and the GPU work launched in it, on
-- its thread, have ended. If the next step begins before that, the CPU works ahead, and steps are timed on the GPU:
-- from the end of the previous step (the first one: from the start of its work) to the end of their own work. So no
-- time counts twice, and the sum is the union. Idle: the GPU has no work and waits for the host. Tokens are those in
-- the name of the range, else those of the lookups.
-- @param per kind|step = kind     What a row is.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column kind text               prefill, decode, or mixed.
-- @column step index              Step, from 0; empty for per=kind.
-- @column steps count             Steps.
-- @column tokens count            Tokens processed; for decode steps, tokens generated.
-- @column time_ns ns              Union of their time: overlapping steps count once.
-- @column avg_step_ns ns          Mean length.
-- @column median_step_ns ns       Median length.
-- @column tokens_per_s number     Tokens / time.
-- @column launches count          Launch calls with GPU work.
-- @column busy_ns ns              Union of their own GPU work.
-- @column idle_ns ns              Part of the time without any GPU work.
-- @column idle_pct %              Share of the time: launch-bound.
-- @column attention_ns ns         Durations of attention kernels.
-- @column kv_cache_ns ns          Durations of the work that writes the KV cache: kernels with names that say so,
--                                 concatenation along the third of four dimensions, and index_copy and index_put into
--                                 four dimensions.
-- @main rank, kind, steps, tokens, median_step_ns, tokens_per_s, idle_pct, attention_ns, kv_cache_ns
-- @order run_id, rank, step, time_ns DESC, kind
-- @use arithmetic, intervals, launches, serving_steps
-- @needs inference steps: ranges of vLLM, SGLang or your own (named prefill and decode), or operators (with shapes)
-- @rows if there are steps of inference
-- @full ranges and launch calls
-- @plot bars y=run_id,rank,kind,step x=busy_ns,idle_ns
WITH steps AS (
    SELECT
        *, row_number() OVER (ORDER BY run_id, rank, start_ns)::INTEGER AS track,
        row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns) - 1 AS turn
    FROM serving_steps
),
writes AS (
    SELECT DISTINCT run_id, rank, tid, start_ns
    FROM launching_ops
    WHERE name = 'aten::cat' AND json_array_length(input_dims, '$[0][0]') = 4
        AND json_extract_string(concrete_inputs, '$[1]') IN ('2', '-2')
        OR name IN ('aten::index_copy_', 'aten::index_put_', 'aten::_index_put_impl_')
        AND json_array_length(input_dims, '$[0]') = 4
),
tracks AS (
    SELECT
        s.track, w.correlation_id, w.start_ns, w.start_ns + w.dur_ns AS end_ns, w.dur_ns,
        n.family = 'attention' AS is_attention,
        o.start_ns IS NOT NULL OR regexp_matches(
            w.name, '(?i)reshape_and_cache|concat_and_cache|(?:kv|page)_?cache|append_paged|set_kv_buffer'
        ) AS is_write
    FROM gpu_work w
    ASOF JOIN steps s
        ON s.run_id = w.run_id AND s.rank = w.rank AND s.tid = w.call_tid AND w.call_start_ns >= s.start_ns
    LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
    LEFT JOIN writes o
        ON o.run_id = w.run_id AND o.rank = w.rank AND o.tid = w.op_tid AND o.start_ns = w.op_start_ns
    WHERE w.call_start_ns < s.end_ns
),
sums AS (
    SELECT
        track, count(DISTINCT correlation_id) AS launches, min(start_ns) AS first_work_ns, max(end_ns) AS done_ns,
        coalesce(sum(dur_ns) FILTER (is_attention), 0)::BIGINT AS attention_ns,
        coalesce(sum(dur_ns) FILTER (is_write), 0)::BIGINT AS kv_cache_ns
    FROM tracks
    GROUP BY track
),
-- If the next step begins before this one is done, the CPU works ahead, and steps are timed on the GPU.
ended AS (
    SELECT
        s.*, greatest(range_end_ns, coalesce(done_ns, range_end_ns)) AS done_ns, first_work_ns,
        dense_rank() OVER (ORDER BY run_id, rank)::INTEGER AS rank_track,
        coalesce(launches, 0) AS launches, coalesce(attention_ns, 0) AS attention_ns,
        coalesce(kv_cache_ns, 0) AS kv_cache_ns
    FROM steps s LEFT JOIN sums USING (track)
),
begun AS (
    SELECT
        *, previous_end((run_id, rank), start_ns, done_ns) AS previous_end_ns,
        lead(start_ns) OVER (PARTITION BY run_id, rank ORDER BY start_ns, done_ns DESC) AS next_ns
    FROM ended
),
placed AS (
    SELECT * REPLACE (
        CASE
            WHEN start_ns < previous_end_ns THEN least(previous_end_ns, done_ns)
            WHEN next_ns < done_ns THEN coalesce(greatest(start_ns, first_work_ns), start_ns)
            ELSE start_ns
        END AS start_ns
    )
    FROM begun
),
windows AS (
    SELECT rank_track AS track, track AS window_id, start_ns, done_ns AS end_ns FROM placed WHERE done_ns > start_ns
),
all_work AS (
    SELECT r.rank_track AS track, w.start_ns, w.start_ns + w.dur_ns AS end_ns
    FROM gpu_work w JOIN (SELECT DISTINCT run_id, rank, rank_track FROM placed) r USING (run_id, rank)
),
working AS (
    SELECT window_id AS track, start_ns, end_ns FROM intervals_clip('all_work', 'windows')
),
timed AS (
    SELECT
        p.*, p.done_ns - p.start_ns AS step_ns, coalesce(own.covered_ns, 0) AS covered_ns,
        p.done_ns - p.start_ns - coalesce(gpu.covered_ns, 0) AS idle_ns
    FROM placed p
    LEFT JOIN intervals_coverage('tracks') own ON own.track = p.track
    LEFT JOIN intervals_coverage('working') gpu ON gpu.track = p.track
)
SELECT
    run_group, run_id, rank, kind, CASE WHEN '{per}' = 'step' THEN turn END AS step, count(*) AS steps,
    sum(tokens)::BIGINT AS tokens, sum(step_ns)::BIGINT AS time_ns, avg(step_ns) AS avg_step_ns,
    median(step_ns) AS median_step_ns,
    sum(tokens) FILTER (tokens IS NOT NULL) * 1e9 / nullif(sum(step_ns) FILTER (tokens IS NOT NULL), 0) AS tokens_per_s,
    sum(launches)::BIGINT AS launches, sum(covered_ns)::BIGINT AS busy_ns,
    sum(t.idle_ns)::BIGINT AS idle_ns, pct(sum(t.idle_ns), sum(step_ns)) AS idle_pct,
    sum(attention_ns)::BIGINT AS attention_ns, sum(kv_cache_ns)::BIGINT AS kv_cache_ns
FROM timed t
GROUP BY run_group, run_id, rank, kind, step
