-- What servers' own attention operators need for each token, from the shapes of their inputs.
-- @use launches, op_bytes, serving_times

-- @view server_attention  a row is an operator of a server whose attention kernels a step launched.
-- Multi-head latent attention (MLA) attends to one latent vector and a rotary part of each token, which are the keys
-- and values of all heads, when it decodes, and to keys and values of each head for prompts.
-- @column track index             Step, as in served_steps.
-- @column op_tid id               Thread of the operator.
-- @column op_start_ns ns          Its start.
-- @column replay id               Correlation id of the replay that runs it again; NULL outside CUDA graphs.
-- @column type text               Type of its queries.
-- @column part text               Tokens that it processes: all, prompts or decodes.
-- @column pair_flops FLOP         FLOPs for each pair of a new token and one that it attends to.
-- @column context_bytes B         Keys and values of each token of the context.
-- @column token_bytes B           Query and result of each new token.
CREATE VIEW server_attention AS
WITH _ops AS (
    SELECT DISTINCT
        w.track, w.op_tid, w.op_start_ns, CASE WHEN replayed THEN correlation_id END AS replay, w.in_mla,
        regexp_matches(o.name, '_mla(?:_|$)|::mla_') AS is_mla, o.name,
        list_transform(TRY_CAST(o.input_dims AS JSON[]), lambda x : TRY_CAST(x AS BIGINT[])) AS shapes,
        TRY_CAST(o.input_types AS VARCHAR[]) AS types, TRY_CAST(o.concrete_inputs AS VARCHAR[]) AS inputs,
        shapes[1][-2] AS heads, range(2, len(shapes) + 1) AS others
    FROM step_work w
    JOIN launching_ops o
        ON o.run_id = w.run_id AND o.rank = w.rank AND o.tid = w.op_tid AND o.start_ns = w.op_start_ns
    WHERE w.is_attention AND NOT starts_with(o.name, 'aten::') AND len(shapes[1]) > 2
),
-- Queries end with heads x head size, and so do keys; values may have another size. The cache has four or more
-- dimensions, new keys have three. Input 5 of FlashAttention 3 are queries of the values, which then are keys, too.
_plain AS (
    SELECT
        *, CASE WHEN in_mla THEN 'prompts' ELSE 'all' END AS part,
        list_filter(others, lambda i : shapes[i][-1] = shapes[1][-1] AND len(shapes[i]) > 2) AS alike,
        coalesce(list_filter(alike, lambda i : len(shapes[i]) > 3)[1], alike[1]) AS key,
        coalesce(
            shapes[list_filter(others, lambda i : i <> key AND shapes[i][:-2] = shapes[key][:-2])[1]][-1],
            shapes[1][-1]
        ) AS value_size,
        shapes[1][-1] + CASE WHEN ends_with(name, '::fwd') THEN coalesce(shapes[6][-1], 0) ELSE 0 END AS query_size,
        shapes[key][-2] * (shapes[key][-1] + value_size) AS context_numbers
    FROM _ops
    WHERE NOT is_mla AND key IS NOT NULL
),
-- The cache of MLA has a vector for each token, of the latent and the rotary part. It is not known to how many tokens
-- sparse attention attends: integers of three dimensions list them.
_latent AS (
    SELECT
        *, 'decodes' AS part, contains(name, 'unified') AS is_layer,
        list_filter(list_transform(shapes, lambda x : CASE WHEN len(x) > 2 THEN x[-1] END), lambda n : n > 0) AS sizes,
        CASE
            WHEN is_layer THEN shapes[2][-1] + shapes[3][-1]
            WHEN contains(name, 'cutlass') THEN list_max(sizes)
            ELSE shapes[1][-1]
        END AS query_size,
        CASE WHEN is_layer THEN shapes[2][-1] ELSE coalesce(
            list_max(list_filter(sizes, lambda n : n < query_size)),
            TRY_CAST(list_filter(inputs, lambda x : regexp_full_match(x, '\d+'))[1] AS BIGINT)
        ) END AS value_size,
        CASE WHEN is_layer THEN 2
            ELSE list_filter(others, lambda i : len(shapes[i]) > 2 AND shapes[i][-1] >= query_size)[1] END AS key,
        CASE WHEN is_layer THEN query_size ELSE shapes[key][-1] END AS context_numbers
    FROM _ops
    WHERE is_mla AND len(list_filter(others, lambda i : types[i] = 'int' AND len(shapes[i]) > 2)) = 0
)
SELECT
    track, op_tid, op_start_ns, replay, types[1] AS type, part, 2 * heads * (query_size + value_size) AS pair_flops,
    context_numbers * input_dtype_bytes(types[key]) AS context_bytes,
    heads * (query_size + value_size) * input_dtype_bytes(types[1]) AS token_bytes
FROM (
    SELECT * EXCLUDE (alike) FROM _plain
    UNION ALL BY NAME
    SELECT * EXCLUDE (is_layer, sizes) FROM _latent
);
