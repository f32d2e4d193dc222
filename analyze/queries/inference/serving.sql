-- What do the prefill and decode steps of inference cost?
--
-- A step is a range of vLLM (execute_context_1(983)_generation_0(0)), SGLang (step[DECODE bs=4]), TensorRT-LLM
-- ([Executor] _forward_step 7: 0 ctx reqs, 0 ctx tokens, 8 gen reqs) or ATOM (decode[bs=4 tok=4]), or of your own
-- program with a name that begins with prefill or decode. Without such ranges, a step is a pass over the model: from a
-- lookup in the first embedding table to the next one; prefill if the sequences have more than one new token.
-- Recordings with a backward pass have no such steps. A step ends when its range and the GPU work launched in it, on
-- its thread, have ended. If the next step begins before that, the CPU works ahead, and steps are timed on the GPU:
-- from the end of the previous step (the first one: from the start of its work) to the end of their own work. So no
-- time counts twice, and the sum is the union. Idle: the GPU has no work and waits for the host. Requests and tokens
-- come from the name of the range, else from the lookups. Captures of CUDA graphs are not steps.
-- @param per kind|step = kind     What a row is.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column kind text               prefill; decode; mixed: both; verify: decode with drafts to check; draft: a pass of
--                                 the draft model; idle: no request; empty if not known.
-- @column step index              Step, from 0; empty for per=kind.
-- @column steps count             Steps.
-- @column requests number         Mean number of requests.
-- @column context_tokens number   Mean number of tokens of a request in the KV cache, after the step.
-- @column tokens count            Tokens processed; for verify, with drafts.
-- @column cached_tokens count     Prompt tokens that were in the cache already: hits of the prefix cache, or earlier
--                                 chunks of a chunked prefill.
-- @column generated_tokens count  Tokens generated; empty if not known. A prompt generates one when it is complete,
--                                 which names tell only if no prompt token was cached.
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
-- @column note text               Why times are missing.
-- @main rank, kind, steps, requests, context_tokens, tokens, median_step_ns, tokens_per_s, idle_pct, attention_ns,
--     kv_cache_ns, note
-- @order run_id, rank, step, time_ns DESC, kind
-- @use arithmetic, serving_times
-- @needs inference steps: ranges of a server or your own (named prefill and decode), or operators (with shapes)
-- @rows if there are steps of inference
-- @full ranges and launch calls
-- @plot bars y=run_id,rank,kind,step x=busy_ns,idle_ns
SELECT
    run_group, run_id, rank, kind, CASE WHEN '{per}' = 'step' THEN turn END AS step, count(*) AS steps,
    avg(requests) AS requests,
    sum(prompt_context + decode_context) / nullif(sum(requests) FILTER (
        prompt_context + decode_context IS NOT NULL
    ), 0)::DOUBLE AS context_tokens,
    sum(tokens)::BIGINT AS tokens, sum(prompt_context - prompt_tokens)::BIGINT AS cached_tokens,
    CASE WHEN bool_and(generated IS NOT NULL) THEN sum(generated)::BIGINT END AS generated_tokens,
    sum(step_ns)::BIGINT AS time_ns, avg(step_ns) AS avg_step_ns, median(step_ns) AS median_step_ns,
    sum(tokens) FILTER (tokens IS NOT NULL) * 1e9 / nullif(sum(step_ns) FILTER (tokens IS NOT NULL), 0) AS tokens_per_s,
    sum(launches)::BIGINT AS launches, sum(busy_ns)::BIGINT AS busy_ns, sum(s.idle_ns)::BIGINT AS idle_ns,
    pct(sum(s.idle_ns), sum(step_ns)) AS idle_pct, sum(attention_ns)::BIGINT AS attention_ns,
    sum(kv_cache_ns)::BIGINT AS kv_cache_ns,
    CASE WHEN bool_or(lost) THEN 'the times of the kernels of CUDA graphs are lost: most replays have no kernels, or '
        || 'kernels that begin three steps later; record without CUDA graphs' END AS note
FROM served_steps s
GROUP BY run_group, run_id, rank, kind, step
