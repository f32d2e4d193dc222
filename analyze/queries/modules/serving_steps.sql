-- Steps of inference on the CPU: prefill and decode, with what their names tell. The module `serving_times` has their
-- GPU work.
-- @use intervals

-- @macro first_number(name, pattern)  the number in the first group of a pattern, at its first match in a name; NULL
--   without one.
CREATE MACRO first_number(name, pattern) AS TRY_CAST(regexp_extract(name, pattern, 1) AS BIGINT);

-- @macro labelled(name, key)  the number behind a key in brackets: step[DECODE bs=4 g_sk=30], decode[bs=3/4 tok=3].
CREATE MACRO labelled(name, key) AS first_number(name, '[\[ ]' || key || '=(\d+)');

-- @macro vllm_sum(name, part, key)  a sum in execute_9_context_1(sq8sk8sqsq64sqsk64)_generation_1(sq1sk5sqsq1sqsk5).
-- `part`: context or generation; `key`: a pattern of what comes before the number.
CREATE MACRO vllm_sum(name, part, key) AS first_number(name, part || '_\d+\(' || key || '(\d+)');

-- @table step_names  a row is a name of ranges that are steps of inference, with what it tells.
-- Names of vLLM, SGLang, TensorRT-LLM and AMD's ATOM, and names that begin with prefill or decode. NULL: not known.
-- @column name text               Name of the range.
-- @column kind text               prefill; decode; mixed: both; verify: decode with drafts to check; draft: a pass of
--                                 the draft model; idle: no request.
-- @column prompt_requests count   Requests with tokens of their prompt.
-- @column decode_requests count   Requests that generate.
-- @column prompt_tokens count     Tokens of prompts that are processed.
-- @column decode_tokens count     Tokens of the others: one of each, and drafts.
-- @column prompt_context count    Tokens that the prompts then have in the cache, summed over requests.
-- @column decode_context count    The same of the others.
-- @column pairs count             Pairs of a new token and one that it attends to; the mask is causal.
-- @column requests count          Requests.
-- @column tokens count            Tokens that are processed.
CREATE TABLE step_names AS
WITH _names AS (
    SELECT DISTINCT name FROM ranges WHERE origin IN ('nvtx', 'record_function')
),
-- With "detailed" profiling, sums over the requests: q new tokens, k tokens that they attend to, q * q and q * k.
_vllm AS (
    SELECT
        name, first_number(name, 'context_(\d+)\(') AS prompt_requests,
        first_number(name, '_generation_(\d+)\(') AS decode_requests,
        vllm_sum(name, 'context', '(?:sq)?') AS prompt_tokens, vllm_sum(name, 'generation', '(?:sq)?') AS decode_tokens,
        vllm_sum(name, 'context', 'sq\d+sk') AS prompt_context,
        vllm_sum(name, 'generation', 'sq\d+sk') AS decode_context,
        vllm_sum(name, 'context', '[^)]*sqsq') + vllm_sum(name, 'generation', '[^)]*sqsq') AS squares,
        vllm_sum(name, 'context', '[^)]*sqsk') + vllm_sum(name, 'generation', '[^)]*sqsk') AS products
    FROM _names
    WHERE regexp_matches(name, '^execute_.*context_\d+\(.*_generation_\d+\(')
    UNION ALL BY NAME
    SELECT
        name, first_number(name, '_new_(\d+)') AS prompt_requests,
        first_number(name, '_cached_(\d+)') AS decode_requests
    FROM _names
    WHERE regexp_matches(name, '^execute_new_\d+_cached_\d+$')
),
_modes AS (
    SELECT
        name, regexp_extract(name, '^step\[(\w+)', 1) AS mode, labelled(name, 'bs') AS bs,
        mode IN ('EXTEND', 'SPLIT_PREFILL', 'PREBUILT') AS prompts
    FROM _names
    WHERE regexp_matches(name, '^step\[[A-Z_0-9]+ bs=')
),
_sglang AS (
    SELECT
        name, mode,
        CASE WHEN mode = 'MIXED' THEN labelled(name, 'c') WHEN prompts THEN bs ELSE 0 END AS prompt_requests,
        CASE WHEN mode = 'MIXED' THEN labelled(name, 'g') WHEN prompts THEN 0 ELSE bs END AS decode_requests,
        CASE WHEN mode = 'MIXED' THEN labelled(name, 'c_sq') WHEN prompts THEN labelled(name, 'toks') ELSE 0 END
            AS prompt_tokens,
        CASE WHEN prompts THEN 0 ELSE coalesce(labelled(name, 'g_sq'), CASE WHEN mode = 'DECODE' THEN bs END) END
            AS decode_tokens,
        labelled(name, 'c_sk') AS prompt_context, labelled(name, 'g_sk') AS decode_context,
        coalesce(labelled(name, 'c_sqsq'), 0) + coalesce(labelled(name, 'g_sqsq'), 0) AS squares,
        coalesce(labelled(name, 'c_sqsk') + coalesce(labelled(name, 'g_sqsk'), 0), labelled(name, 'g_sqsk'))
            AS products,
        bs AS requests, labelled(name, 'toks') AS tokens
    FROM _modes
),
_tensorrt AS (
    SELECT
        name, first_number(name, '(\d+) ctx reqs') AS prompt_requests,
        first_number(name, '(\d+) gen reqs') AS decode_requests,
        CASE WHEN prompt_requests = 0 THEN 0 ELSE first_number(name, '(\d+) ctx tokens') END AS prompt_tokens,
        -- With speculative decoding there are more: the name does not tell.
        decode_requests AS decode_tokens
    FROM _names
    WHERE regexp_matches(name, '^\[Executor\] _forward_step.*: \d+ ctx reqs, .*\d+ gen reqs')
),
_atom AS (
    SELECT
        name, contains(name, 'prefill[') AS prompts, labelled(name, 'p') > 0 AS both_kinds,
        CASE WHEN prompts THEN labelled(name, 'bs') ELSE coalesce(labelled(name, 'p'), 0) END AS prompt_requests,
        CASE WHEN prompts THEN 0 ELSE coalesce(labelled(name, 'd'), labelled(name, 'bs')) END AS decode_requests,
        CASE WHEN prompts THEN labelled(name, 'tok') WHEN NOT coalesce(both_kinds, false) THEN 0 END AS prompt_tokens,
        CASE WHEN prompts THEN 0 WHEN NOT coalesce(both_kinds, false) THEN labelled(name, 'tok') END AS decode_tokens,
        CASE WHEN prompts THEN labelled(name, 'sk') END AS prompt_context,
        CASE WHEN NOT prompts AND NOT coalesce(both_kinds, false) THEN labelled(name, 'sk') END AS decode_context,
        labelled(name, 'sqsq') AS squares, labelled(name, 'sqsk') AS products, labelled(name, 'tok') AS tokens
    FROM _names
    WHERE regexp_matches(name, '^(?:eager_)?(?:prefill|decode)\[bs=')
),
_own AS (
    SELECT name FROM _names WHERE regexp_matches(name, '^(?i:prefill|decode)')
),
_all AS (
    SELECT * FROM _vllm
    UNION ALL BY NAME
    SELECT * FROM _sglang
    UNION ALL BY NAME
    SELECT * FROM _tensorrt
    UNION ALL BY NAME
    SELECT * EXCLUDE (prompts, both_kinds) FROM _atom
    UNION ALL BY NAME
    SELECT name FROM _own ANTI JOIN _atom USING (name)
)
SELECT
    name, CASE
        WHEN mode = 'IDLE' OR prompt_requests + decode_requests = 0 THEN 'idle'
        WHEN starts_with(mode, 'DRAFT') THEN 'draft'
        WHEN contains(mode, 'VERIFY') THEN 'verify'
        WHEN mode = 'MIXED' OR prompt_requests > 0 AND decode_requests > 0 THEN 'mixed'
        WHEN prompt_requests > 0 OR prompt_requests IS NULL AND name ILIKE 'prefill%' THEN 'prefill'
        WHEN decode_tokens > decode_requests THEN 'verify'
        ELSE 'decode'
    END AS kind,
    prompt_requests, decode_requests, prompt_tokens, decode_tokens,
    CASE WHEN prompt_requests = 0 THEN 0 ELSE prompt_context END AS prompt_context,
    CASE WHEN decode_requests = 0 THEN 0 ELSE decode_context END AS decode_context,
    -- Of q new tokens, the i-th does not attend to the q - i after it.
    products - (squares - coalesce(prompt_tokens + decode_tokens, tokens)) // 2 AS pairs,
    coalesce(requests, prompt_requests + decode_requests) AS requests,
    coalesce(prompt_tokens + decode_tokens, tokens) AS tokens
FROM _all;

-- @table serving_steps  a row is a step of inference of a rank.
-- A range with a name in step_names; without such ranges, a pass over the model: from a lookup in the first embedding
-- table to the next one, also in compiled code; in a CUDA graph when it is replayed, not when captured. Recordings with
-- a backward pass have no such passes.
-- @columns run_group, run_id, rank, tid, start_ns
-- @column end_ns ns               End of the range, or start of the next pass; the last pass has no end (2^63 - 1).
-- @column range_end_ns ns         End of the range; for a pass its start.
-- @column kind text               As in step_names; NULL if not known: a pass over several tokens without a batch.
-- @column requests count          Requests; NULL if not known, as in the following columns.
-- @column tokens count            Tokens that are processed.
-- @column prompt_requests count   As in step_names.
-- @column decode_requests count   As in step_names.
-- @column prompt_tokens count     As in step_names.
-- @column decode_tokens count     As in step_names.
-- @column prompt_context count    As in step_names.
-- @column decode_context count    As in step_names.
-- @column pairs count             As in step_names.
CREATE TABLE serving_steps AS
WITH _inputs AS (
    SELECT
        run_group, run_id, rank, tid, start_ns, name = 'aten::embedding' AS eager,
        list_transform(TRY_CAST(input_dims AS JSON[]), lambda x : TRY_CAST(x AS BIGINT[])) AS shapes,
        CASE WHEN name = 'aten::embedding' THEN shapes[2]
            ELSE shapes[list_position(TRY_CAST(input_types AS VARCHAR[]), 'long int')] END AS batch
    FROM (SELECT * FROM cpu_ops UNION ALL SELECT * FROM captured_ops)
    -- Inductor's kernels have the names of the operators in them.
    WHERE (name = 'aten::embedding' OR starts_with(name, 'triton_') AND contains(name, '_embedding'))
        AND input_dims IS NOT NULL
),
-- The first table is the one of tokens; others are of positions.
_of_tokens AS (
    SELECT i.*, g.graph
    FROM _inputs i
    LEFT JOIN (
        SELECT run_id, rank, shapes[1] AS words
        FROM _inputs
        WHERE eager
        QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns, tid) = 1
    ) USING (run_id, rank)
    LEFT JOIN (SELECT DISTINCT run_id, rank, graph, begin_ns, end_ns FROM graph_launches) g
        ON g.run_id = i.run_id AND g.rank = i.rank AND i.start_ns BETWEEN g.begin_ns AND g.end_ns
    -- torch.compile looks up while it traces the code, too.
    LEFT JOIN (
        SELECT run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns
        FROM cpu_ops
        WHERE starts_with(name, '_compile.compile_inner')
    ) t ON t.run_id = i.run_id AND t.rank = i.rank AND t.tid = i.tid AND i.start_ns BETWEEN t.start_ns AND t.end_ns
    WHERE t.tid IS NULL
        AND CASE WHEN eager THEN shapes[1] = words ELSE words IS NULL OR list_contains(shapes, words) END
),
-- A call of compiled code looks up once, however many of its kernels do; a replay of a CUDA graph when it is launched.
_places AS (
    SELECT l.run_group, l.run_id, l.rank, l.tid, l.start_ns, l.batch
    FROM _of_tokens l
    ASOF LEFT JOIN (
        SELECT run_id, rank, tid, start_ns FROM ranges WHERE starts_with(name, '## Call CompiledFxGraph')
    ) c ON c.run_id = l.run_id AND c.rank = l.rank AND c.tid = l.tid AND l.start_ns >= c.start_ns
    WHERE graph IS NULL
    QUALIFY eager OR row_number() OVER (
        PARTITION BY l.run_id, l.rank, l.tid, c.start_ns, eager ORDER BY l.start_ns
    ) = 1
    UNION ALL
    SELECT run_group, run_id, rank, call_tid, call_start_ns, batch
    FROM (
        SELECT DISTINCT run_group, run_id, rank, graph, call_tid, call_start_ns
        FROM gpu_work
        WHERE graph IS NOT NULL AND call_start_ns IS NOT NULL
    )
    JOIN (
        SELECT run_id, rank, graph, arg_min(batch, start_ns) AS batch
        FROM _of_tokens
        WHERE graph IS NOT NULL
        GROUP BY ALL
    ) USING (run_id, rank, graph)
),
_lookups AS (
    SELECT
        * EXCLUDE (batch), list_product(batch)::BIGINT AS tokens, batch,
        CASE WHEN len(batch) > 1 THEN tokens // batch[-1] END AS requests
    FROM _places
),
_named AS (
    SELECT r.run_group, r.run_id, r.rank, r.tid, r.start_ns, r.start_ns + r.dur_ns AS end_ns, n.*
    FROM ranges r JOIN step_names n USING (name)
    WHERE r.origin IN ('nvtx', 'record_function') AND r.dur_ns IS NOT NULL
    QUALIFY coalesce(
        r.start_ns >= previous_end((r.run_id, r.rank, r.tid), r.start_ns, r.start_ns + r.dur_ns), true
    )
),
-- SGLang's draft model has a range like the prompt before it.
_repeats AS (
    SELECT
        *,
        bool_or(kind IN ('verify', 'draft') AND starts_with(name, 'step[')) OVER (PARTITION BY run_id, rank) AS drafts,
        row_number() OVER (PARTITION BY run_id, rank, tid ORDER BY start_ns)
            - row_number() OVER (PARTITION BY run_id, rank, tid, name ORDER BY start_ns) AS repeats
    FROM _named
),
-- What names do not tell, lookups in the range do.
_looked AS (
    SELECT
        n.run_id, n.rank, n.tid, n.start_ns, sum(l.tokens)::BIGINT AS looked_tokens,
        max(l.requests) AS looked_requests
    FROM _lookups l
    ASOF JOIN _named n ON n.run_id = l.run_id AND n.rank = l.rank AND n.tid = l.tid AND l.start_ns >= n.start_ns
    WHERE l.start_ns < n.end_ns
    GROUP BY ALL
),
_ranged AS (
    SELECT
        * REPLACE (
            CASE WHEN drafts AND kind = 'prefill'
                AND row_number() OVER (PARTITION BY run_id, rank, tid, name, repeats ORDER BY start_ns) % 2 = 0
                THEN 'draft' ELSE kind END AS kind,
            coalesce(tokens, looked_tokens) AS tokens, coalesce(requests, looked_requests) AS requests
        ),
        name IN (SELECT name FROM step_names WHERE prompt_requests IS NULL AND requests IS NULL) AS own
    FROM _repeats LEFT JOIN _looked USING (run_id, rank, tid, start_ns)
),
_passes AS (
    SELECT
        run_group, run_id, rank, tid, l.start_ns,
        lead(l.start_ns) OVER (PARTITION BY run_id, rank, tid ORDER BY l.start_ns) AS next_ns,
        CASE WHEN len(batch) > 1 AND batch[-1] > 1 THEN 'prefill' WHEN len(batch) > 1 OR tokens = 1 THEN 'decode' END
            AS kind,
        coalesce(requests, CASE WHEN tokens = 1 THEN 1 END) AS requests, tokens
    FROM _lookups l
    ANTI JOIN _named USING (run_id, rank)
    ANTI JOIN (
        SELECT run_id, rank
        FROM (SELECT * FROM cpu_ops UNION ALL SELECT * FROM captured_ops)
        WHERE starts_with(name, 'autograd::engine')
        GROUP BY ALL
    ) USING (run_id, rank)
),
-- Of a step of prompts only, or of one that only generates, all is known.
_steps AS (
    SELECT *, end_ns AS range_end_ns, own AS plain FROM _ranged
    UNION ALL BY NAME
    SELECT *, start_ns AS range_end_ns, coalesce(next_ns, 9223372036854775807) AS end_ns, true AS plain FROM _passes
)
SELECT
    run_group, run_id, rank, tid, start_ns, end_ns, range_end_ns, kind, requests, tokens,
    CASE WHEN plain THEN CASE kind WHEN 'prefill' THEN requests WHEN 'decode' THEN 0 END ELSE prompt_requests END
        AS prompt_requests,
    CASE WHEN plain THEN CASE kind WHEN 'prefill' THEN 0 WHEN 'decode' THEN requests END ELSE decode_requests END
        AS decode_requests,
    CASE WHEN plain THEN CASE kind WHEN 'prefill' THEN tokens WHEN 'decode' THEN 0 END ELSE prompt_tokens END
        AS prompt_tokens,
    CASE WHEN plain THEN CASE kind WHEN 'prefill' THEN 0 WHEN 'decode' THEN tokens END ELSE decode_tokens END
        AS decode_tokens,
    CASE WHEN plain AND kind = 'prefill' THEN tokens ELSE prompt_context END AS prompt_context, decode_context, pairs
FROM _steps;
