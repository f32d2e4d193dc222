-- Steps of inference on the CPU: prefill and decode. The query `serving` times them with their GPU work.
-- @use intervals, op_flops

-- @table serving_steps  a row is a prefill or decode step of a rank.
-- A range of vLLM, of SGLang, or whose name begins with prefill or decode; without such ranges, a pass over the model:
-- from a lookup in the first embedding table to the next one. Recordings with a backward pass have no such passes.
-- @columns run_group, run_id, rank, tid, start_ns
-- @column end_ns ns               End of the range, or start of the next pass; the last pass has no end (2^63 - 1).
-- @column kind text               prefill, decode, or mixed.
-- @column tokens count            Tokens that are processed; NULL if not known.
-- @column range_end_ns ns         End of the range; for a pass its start.
CREATE TABLE serving_steps AS
WITH _lookups AS (
    SELECT
        run_group, run_id, rank, tid, start_ns, list_product(shape(input_dims, 1))::BIGINT AS tokens,
        shape(input_dims, 1)[-1] AS new_tokens
    FROM cpu_ops
    WHERE name = 'aten::embedding' AND input_dims IS NOT NULL
    QUALIFY shape(input_dims, 0) = first_value(shape(input_dims, 0)) OVER (
        PARTITION BY run_id, rank ORDER BY start_ns, tid
    )
),
_named AS (
    SELECT
        run_group, run_id, rank, tid, name, start_ns, start_ns + dur_ns AS end_ns,
        TRY_CAST(regexp_extract(name, '_context_\d+\((?:sq)?(\d+)', 1) AS BIGINT) AS context_tokens,
        TRY_CAST(regexp_extract(name, '_generation_\d+\((?:sq)?(\d+)', 1) AS BIGINT) AS generation_tokens
    FROM ranges
    WHERE origin IN ('nvtx', 'record_function') AND dur_ns IS NOT NULL AND regexp_matches(
        name, '^(?i:prefill|decode)|^step\[(?:EXTEND|DECODE|MIXED)\b|^execute_.*context_\d+\(.*_generation_\d+\('
    )
    QUALIFY coalesce(
        start_ns >= previous_end((run_id, rank, tid), start_ns, start_ns + dur_ns), true
    )
),
_ranged AS (
    SELECT
        n.run_group, n.run_id, n.rank, n.tid, n.start_ns, n.end_ns,
        CASE
            WHEN context_tokens IS NOT NULL
                THEN CASE WHEN generation_tokens = 0 THEN 'prefill' WHEN context_tokens = 0 THEN 'decode'
                    ELSE 'mixed' END
            WHEN starts_with(name, 'step[MIXED') THEN 'mixed'
            WHEN starts_with(name, 'step[EXTEND') OR name ILIKE 'prefill%' THEN 'prefill' ELSE 'decode'
        END AS kind,
        coalesce(
            context_tokens + generation_tokens, TRY_CAST(regexp_extract(name, '\btoks=(\d+)', 1) AS BIGINT),
            CASE WHEN starts_with(name, 'step[DECODE')
                THEN TRY_CAST(regexp_extract(name, '\bbs=(\d+)', 1) AS BIGINT) END,
            (SELECT sum(l.tokens)::BIGINT FROM _lookups l WHERE l.run_id = n.run_id AND l.rank = n.rank
                AND l.tid = n.tid AND l.start_ns >= n.start_ns AND l.start_ns < n.end_ns)
        ) AS tokens
    FROM _named n
),
_passes AS (
    SELECT
        run_group, run_id, rank, tid, start_ns,
        lead(start_ns) OVER (PARTITION BY run_id, rank, tid ORDER BY start_ns) AS end_ns,
        CASE WHEN new_tokens > 1 THEN 'prefill' ELSE 'decode' END AS kind, tokens
    FROM _lookups
    ANTI JOIN _named USING (run_id, rank)
    ANTI JOIN (
        SELECT run_id, rank FROM cpu_ops WHERE starts_with(name, 'autograd::engine') GROUP BY ALL
    ) USING (run_id, rank)
)
SELECT run_group, run_id, rank, tid, start_ns, end_ns, kind, tokens, end_ns AS range_end_ns FROM _ranged
UNION ALL
SELECT run_group, run_id, rank, tid, start_ns, coalesce(end_ns, 9223372036854775807), kind, tokens, start_ns
FROM _passes;
