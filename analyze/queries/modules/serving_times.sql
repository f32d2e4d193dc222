-- Steps of inference with their GPU work: when each begins and ends, and what it generates.
-- @use intervals, launches, op_flops, serving_steps

-- @view cache_writes  a row is a call of an operator that writes keys and values into a cache: concatenation along the
--   third of four dimensions, and index_copy and index_put into four dimensions.
-- @columns run_id, rank, tid, start_ns
CREATE VIEW cache_writes AS
SELECT DISTINCT run_id, rank, tid, start_ns
FROM launching_ops SEMI JOIN serving_steps USING (run_id, rank)
WHERE name = 'aten::cat' AND json_array_length(input_dims, '$[0][0]') = 4
    AND json_extract_string(concrete_inputs, '$[1]') IN ('2', '-2')
    OR name IN ('aten::index_copy_', 'aten::index_put_', 'aten::_index_put_impl_')
    AND json_array_length(input_dims, '$[0]') = 4;

-- @table step_work  a row is a kernel, copy or fill that a step of inference launched, on its thread.
-- @columns run_id, rank, track, start_ns, end_ns, dur_ns, correlation_id
-- @column op_tid id               Thread of the operator that launched it.
-- @column op_start_ns ns          Start of that operator.
-- @column sized_call index        As in gpu_work.
-- @column replayed bool           Whether its launch call launches a CUDA graph.
-- @column is_attention bool       Whether it is an attention kernel.
-- @column is_product bool         Whether it is a kernel of a matrix product.
-- @column is_tf32 bool            Whether it computes in TF32.
-- @column is_write bool           Whether it writes keys and values into a cache.
-- @column in_mla bool             Whether it is of a layer of multi-head latent attention (vLLM).
CREATE TABLE step_work AS
WITH _steps AS (
    SELECT *, row_number() OVER (ORDER BY run_id, rank, start_ns, tid)::INTEGER AS track FROM serving_steps
)
SELECT
    w.run_id, w.rank, s.track, w.start_ns, w.start_ns + w.dur_ns AS end_ns, w.dur_ns, w.correlation_id, w.op_tid,
    w.op_start_ns, w.sized_call, contains(w.call_name, 'GraphLaunch') AS replayed,
    coalesce(n.family = 'attention', false) AS is_attention, coalesce(n.family = 'gemm', false) AS is_product,
    coalesce(p.is_tf32, false) AS is_tf32,
    o.start_ns IS NOT NULL OR regexp_matches(
        w.name, '(?i)reshape_and_cache|concat_and_cache|(?:kv|page)_?cache|append_paged|set_kv_buffer'
    ) AS is_write, coalesce(contains(w.outer_name, 'unified_mla_'), false) AS in_mla
-- The semi join spares other recordings the sort of their work.
FROM (FROM gpu_work SEMI JOIN serving_steps USING (run_id, rank)) w
ASOF JOIN _steps s
    ON s.run_id = w.run_id AND s.rank = w.rank AND s.tid = w.call_tid AND w.call_start_ns >= s.start_ns
LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
LEFT JOIN kernel_precisions p ON p.run_id = w.run_id AND p.name = w.name
LEFT JOIN cache_writes o
    ON o.run_id = w.run_id AND o.rank = w.rank AND o.tid = w.op_tid AND o.start_ns = w.op_start_ns
WHERE w.call_start_ns < s.end_ns;

-- @table served_steps  a row is a step of inference as it ran.
-- A step ends when its range and its work have ended. If the next step begins before that, the CPU works ahead, and
-- steps are timed on the GPU: from the end of the previous step (the first one: from the start of its work) to the end
-- of their own work. So no time counts twice, and the sum is the union.
-- @column * of serving_steps
-- @columns track
-- @column turn index              Step of the rank, from 0.
-- @column begin_ns ns             When it begins; NULL if the times of graph kernels are lost, like the other times.
-- @column done_ns ns              When it is done.
-- @column step_ns ns              Its length: no other step's time.
-- @column generated count         Tokens that it generates; NULL if not known.
-- @column launches count          Launch calls with GPU work.
-- @column busy_ns ns              Union of its own GPU work.
-- @column idle_ns ns              Part of its length without any GPU work; NULL without GPU work on the rank.
-- @column attention_ns ns         Durations of its attention kernels.
-- @column kv_cache_ns ns          Durations of its work that writes the KV cache.
-- @column warm_up bool            Whether it is longer than 1.5 times the lower quartile of the steps of its kind and
--                                 number of requests, if there are four, and only the first of these are.
-- @column lost bool               Whether the times of the rank's graph kernels are lost: in most of its steps with
--                                 replays, these have no work, or begin after the third next step has begun.
CREATE TABLE served_steps AS
WITH _steps AS (
    SELECT
        *, row_number() OVER (ORDER BY run_id, rank, start_ns, tid)::INTEGER AS track,
        (row_number() OVER steps - 1)::INTEGER AS turn, lead(start_ns, 3) OVER steps AS third_ns,
        bool_and(prompt_context = prompt_tokens) FILTER (prompt_requests > 0) OVER (PARTITION BY run_id, rank)
            AND bool_and(prompt_context IS NOT NULL) FILTER (prompt_requests > 0) OVER (PARTITION BY run_id, rank)
            AS whole_prompts
    FROM serving_steps
    WINDOW steps AS (PARTITION BY run_id, rank ORDER BY start_ns, tid)
),
_sums AS (
    SELECT
        track, count(DISTINCT correlation_id) AS launches, min(start_ns) AS first_work_ns, max(end_ns) AS last_work_ns,
        min(start_ns) FILTER (replayed) AS replay_ns,
        coalesce(sum(dur_ns) FILTER (is_attention), 0)::BIGINT AS attention_ns,
        coalesce(sum(dur_ns) FILTER (is_write), 0)::BIGINT AS kv_cache_ns
    FROM step_work
    GROUP BY track
),
_replaying AS (
    SELECT DISTINCT s.track
    FROM (
        SELECT run_id, rank, tid, start_ns
        FROM cuda_calls SEMI JOIN serving_steps USING (run_id, rank)
        WHERE contains(name, 'GraphLaunch')
    ) c
    ASOF JOIN _steps s ON s.run_id = c.run_id AND s.rank = c.rank AND s.tid = c.tid AND c.start_ns >= s.start_ns
    WHERE c.start_ns < s.end_ns
),
_lost AS (
    SELECT
        run_id, rank, coalesce(avg((replay_ns IS NULL OR replay_ns > third_ns)::INTEGER) FILTER (
            r.track IS NOT NULL AND (replay_ns IS NULL OR third_ns IS NOT NULL)
        ) > 0.5, false) AS lost
    FROM _steps LEFT JOIN _sums USING (track) LEFT JOIN _replaying r USING (track)
    GROUP BY run_id, rank
),
-- A step that checks drafts generates by how much the caches have grown at the next one of the same requests.
_speculative AS (
    SELECT
        track, CASE
            WHEN kind = 'verify' AND lead(kind) OVER own = 'verify' AND lead(decode_requests) OVER own = decode_requests
                AND lead(decode_tokens) OVER own = decode_tokens
                AND lead(decode_context) OVER own - decode_context BETWEEN decode_requests AND decode_tokens
            THEN lead(decode_context) OVER own - decode_context
        END AS accepted
    FROM _steps
    WHERE kind NOT IN ('draft', 'idle')
    WINDOW own AS (PARTITION BY run_id, rank ORDER BY start_ns, tid)
),
_ended AS (
    SELECT
        s.* EXCLUDE (third_ns, whole_prompts), coalesce(launches, 0) AS launches,
        coalesce(attention_ns, 0) AS attention_ns, coalesce(kv_cache_ns, 0) AS kv_cache_ns, lost, first_work_ns,
        greatest(range_end_ns, coalesce(last_work_ns, range_end_ns)) AS done_ns,
        CASE
            WHEN kind IN ('draft', 'idle') THEN 0
            WHEN kind = 'verify' THEN accepted
            WHEN kind = 'decode' OR whole_prompts THEN prompt_requests + decode_requests
        END AS generated,
        dense_rank() OVER (ORDER BY run_id, rank)::INTEGER AS rank_track
    FROM _steps s
    LEFT JOIN _sums USING (track)
    LEFT JOIN _speculative USING (track)
    JOIN _lost USING (run_id, rank)
),
_begun AS (
    SELECT
        *, previous_end((run_id, rank), start_ns, done_ns) AS previous_end_ns,
        lead(start_ns) OVER (PARTITION BY run_id, rank ORDER BY start_ns, done_ns DESC) AS next_ns
    FROM _ended
),
_placed AS (
    SELECT
        * EXCLUDE (previous_end_ns, next_ns), CASE
            WHEN start_ns < previous_end_ns THEN least(previous_end_ns, done_ns)
            WHEN next_ns < done_ns THEN coalesce(greatest(start_ns, first_work_ns), start_ns)
            ELSE start_ns
        END AS begin_ns
    FROM _begun
),
_step_places AS (
    SELECT rank_track AS track, track AS window_id, begin_ns AS start_ns, done_ns AS end_ns
    FROM _placed
    WHERE done_ns > begin_ns
),
_rank_work AS (
    SELECT r.rank_track AS track, w.start_ns, w.start_ns + w.dur_ns AS end_ns
    FROM gpu_work w JOIN (SELECT DISTINCT run_id, rank, rank_track FROM _placed) r USING (run_id, rank)
),
_step_gpu AS (
    SELECT window_id AS track, start_ns, end_ns FROM intervals_clip('_rank_work', '_step_places')
),
_slow AS (
    SELECT
        track, count(*) OVER alike >= 4
            AND done_ns - begin_ns > 1.5 * quantile_cont(done_ns - begin_ns, 0.25) OVER alike AS is_slow
    FROM _placed
    WINDOW alike AS (PARTITION BY run_id, rank, kind, requests)
),
_warm_up AS (
    SELECT
        track, is_slow AND max(CASE WHEN is_slow THEN turn END) OVER alike
            < min(CASE WHEN NOT is_slow THEN turn END) OVER alike AS warm_up
    FROM _placed JOIN _slow USING (track)
    WINDOW alike AS (PARTITION BY run_id, rank, kind, requests)
)
SELECT
    p.* EXCLUDE (launches, attention_ns, kv_cache_ns, lost, first_work_ns, done_ns, generated, rank_track, begin_ns),
    CASE WHEN NOT lost THEN begin_ns END AS begin_ns, CASE WHEN NOT lost THEN done_ns END AS done_ns,
    CASE WHEN NOT lost THEN done_ns - begin_ns END AS step_ns, generated, launches,
    CASE WHEN NOT lost THEN coalesce(own.covered_ns, 0) END AS busy_ns,
    CASE WHEN NOT lost AND rank_track IN (SELECT track FROM _rank_work)
        THEN done_ns - begin_ns - coalesce(gpu.covered_ns, 0) END AS idle_ns,
    CASE WHEN NOT lost THEN attention_ns END AS attention_ns, CASE WHEN NOT lost THEN kv_cache_ns END AS kv_cache_ns,
    warm_up AND NOT lost AS warm_up, lost
FROM _placed p
JOIN _warm_up w ON w.track = p.track
LEFT JOIN intervals_coverage('step_work') own ON own.track = p.track
LEFT JOIN intervals_coverage('_step_gpu') gpu ON gpu.track = p.track;
