-- Which share of the GPU's peak and memory bandwidth do prefill and decode reach?
--
-- MFU (model FLOPs utilization) = FLOPs / (time x peak), MBU (memory bandwidth utilization) = bytes / (time x
-- bandwidth), with the time of the steps as in `serving`. The peak is for the inputs' type, as in `mfu`; without one,
-- MFU is empty. Matrix products count, from the shapes of their operators, and attention. Bytes are the least that must
-- move: matrices, inputs and outputs of each product, and of attention the keys and values of each request's context,
-- new queries and results, each once. Where the names of steps tell context lengths, attention has 4 x head size x
-- heads FLOPs for each pair of a new token and one that it attends to, whatever its kernel computes: paged and ragged
-- attention of FlashAttention, FlashInfer, vLLM, SGLang and aiter. Sliding windows count in full. With latent attention
-- (MLA), keys are latent and rotary part, values the latent part. Otherwise attention counts by shapes, as in
-- `flops-by-op`, if these give more than an upper bound. The least bytes of fused experts are the weights of the
-- experts of one token. Operators that hide their weights do not count: the figures are then lower bounds.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column kind text               As in `serving`.
-- @column gpu_name text           GPU.
-- @column steps count             Steps.
-- @column time_ns ns              Union of their time.
-- @column flops FLOP              Of matrix products and attention.
-- @column bytes B                 Of matrix products and attention.
-- @column attention_flops FLOP    Of attention; empty if not known.
-- @column kv_cache_bytes B        Keys and values that attention reads; empty if lengths are not known.
-- @column flops_per_byte FLOP/B   Arithmetic intensity.
-- @column mfu_pct %               Model FLOPs utilization.
-- @column mbu_pct %               Memory bandwidth utilization.
-- @column note text               Why a figure is missing or incomplete.
-- @main rank, kind, steps, time_ns, flops, bytes, kv_cache_bytes, flops_per_byte, mfu_pct, mbu_pct, note
-- @order run_id, rank, time_ns DESC, kind
-- @use arithmetic, op_bytes, op_flops, peaks, server_attention, serving_times
-- @needs inference steps: ranges of a server or your own (named prefill and decode), and operators with input shapes
-- @rows if steps of inference launched matrix products
-- @full ranges and launch calls
-- @plot bars y=run_id,rank,kind x=mfu_pct,mbu_pct
WITH sized AS (
    SELECT
        *, shape(input_dims, 0) AS a, shape(input_dims, 1) AS b, shape(input_dims, 2) AS c, shape(input_dims, 3) AS d
    FROM call_signatures
    WHERE output IN (
        'linear', 'matmul', 'batched_matmul', 'grouped_matmul', 'template_matmul', 'attention', 'server_matmul',
        'server_attention'
    ) AND NOT at_most
),
inputs AS (
    SELECT run_id, rank, signature, sum(elements(TRY_CAST(size AS BIGINT[])) * input_dtype_bytes(type))::BIGINT AS bytes
    FROM (
        SELECT
            run_id, rank, signature, unnest(TRY_CAST(input_dims AS JSON[])) AS size,
            unnest(TRY_CAST(input_types AS VARCHAR[])) AS type
        FROM sized
    )
    GROUP BY ALL
),
-- Widths of queries, keys and results: heads x head size.
counted AS (
    SELECT
        s.run_id, s.rank, s.signature, s.type, output = 'attention' AS is_attention,
        output = 'server_attention' AS is_of_server,
        coalesce(server_flops, call_flops(output, name, a, b, c, d, concrete_inputs, gradients))::BIGINT AS flops,
        CASE WHEN starts_with(output, 'server_') THEN server_bytes ELSE i.bytes
            + output_elements(output, name, a, b, c, d, concrete_inputs, flops) * input_dtype_bytes(s.type)
        END AS bytes,
        a[2] * a[4] AS query_width, b[2] * b[4] AS key_width
    FROM sized s JOIN inputs i USING (run_id, rank, signature)
    WHERE flops IS NOT NULL
),
-- A replay runs the captured calls again.
sized_work AS (
    SELECT
        run_id, rank, track, sized_call AS call, CASE WHEN replayed THEN correlation_id END AS replay,
        bool_or(is_tf32) AS tf32
    FROM step_work
    WHERE sized_call IS NOT NULL
    GROUP BY ALL
),
of_sizes AS (
    SELECT w.track, w.tf32, c.type, c.is_attention, c.is_of_server, c.flops, c.bytes, c.query_width, c.key_width
    FROM sized_work w
    JOIN (SELECT run_id, rank, call, signature FROM sized_calls) USING (run_id, rank, call)
    JOIN counted c USING (run_id, rank, signature)
),
-- Prompts and decodes of a mixed step are apart if each decode has one new token. In MLA, the prompts of a request with
-- cached tokens are processed in several calls, with unknown lengths.
lengths AS (
    SELECT
        *, CASE WHEN kind IN ('decode', 'verify') THEN pairs WHEN decode_tokens = decode_requests THEN decode_context
        END AS decode_pairs
    FROM served_steps
    WHERE pairs IS NOT NULL
),
parts AS (
    SELECT track, 'all' AS part, pairs, tokens, prompt_context + decode_context AS context FROM lengths
    UNION ALL
    SELECT track, 'decodes', decode_pairs, decode_tokens, decode_context FROM lengths WHERE decode_pairs > 0
    UNION ALL
    SELECT track, 'prompts', pairs - decode_pairs, prompt_tokens, prompt_context
    FROM lengths
    WHERE pairs > decode_pairs AND prompt_context = prompt_tokens
),
server_ops AS (
    SELECT
        track, op_tid, op_start_ns, type, pair_flops * pairs AS flops, context_bytes * context AS kv_bytes,
        token_bytes * tokens AS token_bytes
    FROM server_attention JOIN parts USING (track, part)
    WHERE pair_flops IS NOT NULL
),
-- Of attention, lengths in the names of steps are better than those in shapes.
attention AS (
    SELECT
        track, tf32, type, coalesce(4 * query_width * pairs, flops) AS flops,
        coalesce((2 * key_width * context + 2 * query_width * tokens) * input_dtype_bytes(type), bytes) AS bytes,
        2 * key_width * context * input_dtype_bytes(type) AS kv_bytes
    FROM of_sizes LEFT JOIN (SELECT * FROM parts WHERE part = 'all') p USING (track)
    WHERE is_attention
    UNION ALL
    SELECT track, false, type, flops, bytes, NULL
    FROM of_sizes ANTI JOIN lengths USING (track)
    WHERE is_of_server
    UNION ALL
    SELECT track, false, type, flops, kv_bytes + token_bytes, kv_bytes FROM server_ops
),
counts AS (
    SELECT track, tf32, type, flops, bytes, NULL AS attention_flops, NULL AS kv_bytes
    FROM of_sizes
    WHERE NOT is_attention AND NOT is_of_server
    UNION ALL
    SELECT track, tf32, type, flops, bytes, flops, kv_bytes FROM attention
),
typed AS (
    SELECT
        c.* EXCLUDE (tf32), s.run_id,
        compute_roofs(type, tf32 OR coalesce(r.precision = 'tf32', false)) AS roofs
    FROM counts c
    JOIN served_steps s ON s.track = c.track
    JOIN (SELECT run_id, precision FROM runs) r ON r.run_id = s.run_id
),
timed AS (
    SELECT
        s.*, p.bandwidth, n.flops, n.bytes, n.attention_flops, n.kv_bytes, n.ideal_s, n.unheld, k.products_ns,
        k.counted_ns
    FROM served_steps s
    LEFT JOIN published_peaks p ON p.run_id = s.run_id
    LEFT JOIN (
        SELECT
            track, sum(flops)::BIGINT AS flops, sum(bytes)::BIGINT AS bytes,
            sum(attention_flops)::BIGINT AS attention_flops, sum(kv_bytes)::BIGINT AS kv_bytes,
            fsum(flops / rate) AS ideal_s, bool_or(flops > 0 AND rate IS NULL) AS unheld
        FROM (
            SELECT t.*, p.peak[list_filter(roofs, lambda r : p.peak[r] IS NOT NULL)[1]] AS rate
            FROM typed t LEFT JOIN published_peaks p USING (run_id)
        )
        GROUP BY track
    ) n ON n.track = s.track
    LEFT JOIN (
        SELECT
            w.track, sum(dur_ns) FILTER (is_product OR is_attention) AS products_ns,
            sum(dur_ns) FILTER ((is_product OR is_attention) AND (c.call IS NOT NULL OR o.track IS NOT NULL))
                AS counted_ns
        FROM step_work w
        LEFT JOIN (
            SELECT DISTINCT run_id, rank, call
            FROM sized_calls SEMI JOIN counted USING (run_id, rank, signature)
        ) c ON c.run_id = w.run_id AND c.rank = w.rank AND c.call = w.sized_call
        LEFT JOIN (SELECT DISTINCT track, op_tid, op_start_ns FROM server_ops) o
            ON o.track = w.track AND o.op_tid = w.op_tid AND o.op_start_ns = w.op_start_ns
        GROUP BY w.track
    ) k ON k.track = s.track
)
SELECT
    run_group, t.run_id, t.rank, kind, gpu_name, count(*) AS steps, sum(step_ns)::BIGINT AS time_ns,
    sum(t.flops)::BIGINT AS flops, sum(t.bytes)::BIGINT AS bytes,
    CASE WHEN bool_and(t.attention_flops IS NOT NULL) THEN sum(t.attention_flops)::BIGINT END AS attention_flops,
    CASE WHEN bool_and(t.kv_bytes IS NOT NULL) THEN sum(t.kv_bytes)::BIGINT END AS kv_cache_bytes,
    sum(t.flops)::DOUBLE / nullif(sum(t.bytes), 0) AS flops_per_byte,
    CASE WHEN NOT bool_or(coalesce(unheld, false)) THEN 100e9 * fsum(t.ideal_s) / nullif(sum(step_ns), 0) END
        AS mfu_pct,
    100e9 * sum(t.bytes) / any_value(t.bandwidth) / nullif(sum(step_ns), 0) AS mbu_pct,
    nullif(concat_ws(
        '; ',
        CASE WHEN bool_or(lost) THEN 'the times of the kernels of CUDA graphs are lost (see serving)' END,
        CASE WHEN pct(sum(products_ns - coalesce(counted_ns, 0)), sum(products_ns)) >= 1 THEN printf(
            'lower bound: %.0f %% of the time of matrix and attention kernels is not counted',
            pct(sum(products_ns - coalesce(counted_ns, 0)), sum(products_ns))
        ) END,
        CASE
            WHEN any_value(t.bandwidth) IS NULL THEN coalesce(gpu_name, 'the GPU') || ' has no published peaks'
            WHEN bool_or(unheld) THEN gpu_name || ' has no published peak for a type that was used'
        END
    ), '') AS note
FROM timed t JOIN (SELECT run_id, gpu_name FROM runs) r ON r.run_id = t.run_id
GROUP BY run_group, t.run_id, t.rank, kind, gpu_name
HAVING bool_or(t.flops IS NOT NULL)
