-- The kinds of workload of a recording, decided from its content. They choose the remedies of findings
-- (analyze/advice).
-- @use serving_steps

-- @view name_counts  a row is a name of operators, ranges or CUDA calls of a run.
-- @columns run_id, run_group
-- @column type text               op, range or call.
-- @column name text               Name.
-- @column calls count             Calls over all ranks.
CREATE VIEW name_counts AS
SELECT run_id, run_group, kind AS type, name, sum(calls)::BIGINT AS calls
FROM op_sums
WHERE NOT python
GROUP BY ALL;

-- @table workload_kinds  a row is a kind of workload of a run; a run may be of several kinds.
-- @columns run_id, run_group
-- @column turn index              Order: the first says most.
-- @column kind text               training, inference, prefill, decode, compiled, CUDA graphs, pipeline, experts,
--                                 CPU only or counters only.
-- @column evidence text           What shows it.
CREATE TABLE workload_kinds AS
WITH _on_gpu AS (
    SELECT run_id FROM gpu_work UNION SELECT run_id FROM gpu_summary
),
-- GPU work that was launched or written, but not read.
_devices AS (
    SELECT run_id FROM cuda_calls UNION SELECT run_id FROM runs WHERE contains(warnings, 'not read')
),
_training AS (
    SELECT
        run_id, run_group,
        coalesce(sum(calls) FILTER (starts_with(name, 'autograd::engine')), 0) AS nodes,
        coalesce(sum(calls) FILTER (starts_with(name, 'Optimizer.step#')), 0) AS optimizer_steps,
        coalesce(sum(calls) FILTER (type = 'range' AND name IN ('backward', 'optimizer')), 0) AS phases
    FROM name_counts
    GROUP BY ALL
    HAVING nodes + optimizer_steps + phases > 0
),
_kernels AS (
    SELECT
        run_id,
        count(*) FILTER (
            regexp_matches(name, '(?i)backward|[_:]bwd|bwd[_:]|dgrad|wgrad|multi_tensor_apply|FusedAdam|adam_cuda')
        ) AS backward,
        count(*) FILTER (regexp_matches(
            name, '(?i)reshape_and_cache|concat_and_cache|paged_attention|append_paged|set_kv_buffer|flash_fwd_splitkv'
        )) AS cached,
        count(*) FILTER (regexp_matches(name, '(?i)fused_moe|moe_align|topk_?gating|grouped_?gemm|GroupedGemm')) AS moe,
        count(*) FILTER (starts_with(name, 'triton_') AND regexp_matches(name, '^triton_[a-z]+_fused_')) AS triton
    FROM kernel_names
    GROUP BY run_id
),
_forward AS (
    SELECT run_id, run_group, sum(calls) AS calls
    FROM name_counts
    WHERE type = 'op' AND regexp_matches(
        name, '^aten::(linear|conv\d?d?|convolution|embedding|\w*attention\w*|(layer|batch|rms)_norm)$'
    )
    GROUP BY ALL
),
_serving AS (
    SELECT run_id, run_group, kind, count(*) AS steps, sum(tokens) AS tokens
    FROM serving_steps
    WHERE kind IN ('prefill', 'decode')
    GROUP BY ALL
),
_compiled AS (
    SELECT run_id, run_group, sum(calls) AS calls
    FROM name_counts
    WHERE starts_with(name, 'Torch-Compiled Region') OR starts_with(name, 'CompiledFunction')
        OR starts_with(name, '## Call CompiledFxGraph')
    GROUP BY ALL
),
_replays AS (
    SELECT run_id, run_group, sum(calls) AS calls
    FROM name_counts WHERE type = 'call' AND contains(name, 'GraphLaunch')
    GROUP BY ALL
),
_graph_work AS (
    SELECT run_id, count(*) AS kernels, count(*) FILTER (contains(call_name, 'GraphLaunch')) AS replayed
    FROM gpu_work WHERE kind = 'kernel'
    GROUP BY run_id
),
_collectives AS (
    SELECT
        run_id, run_group,
        count(*) FILTER (regexp_matches(lower(collective), '^(send|recv)')) AS pairs,
        count(*) FILTER (regexp_matches(lower(collective), 'all_?to_?all')) AS exchanges
    FROM kernels
    WHERE collective IS NOT NULL
    GROUP BY ALL
),
_groups AS (
    SELECT DISTINCT run_id, run_group FROM run_groups
),
_facts AS (
    SELECT
        1 AS turn, run_id, run_group, 'training' AS kind, concat_ws(
            ', ', CASE WHEN nodes > 0 THEN 'autograd nodes: ' || nodes END,
            CASE WHEN optimizer_steps > 0 THEN 'optimizer steps: ' || optimizer_steps END,
            CASE WHEN phases > 0 THEN 'ranges named backward or optimizer: ' || phases END
        ) AS evidence
    FROM _training
    UNION ALL
    SELECT 1, run_id, run_group, 'training', 'names of kernels of a backward pass or an optimizer: ' || backward
    FROM _kernels JOIN _groups USING (run_id)
    WHERE backward > 0 AND run_id NOT IN (SELECT run_id FROM _training) AND run_id IN (SELECT run_id FROM _on_gpu)
    UNION ALL
    SELECT 2, run_id, run_group, 'inference', 'prefill or decode steps; no backward pass'
    FROM _serving
    WHERE run_id NOT IN (SELECT run_id FROM _training)
    UNION ALL
    SELECT 2, run_id, run_group, 'inference', 'names of kernels of a KV cache: ' || cached
    FROM _kernels JOIN _groups USING (run_id)
    WHERE cached > 0 AND backward = 0 AND run_id NOT IN (SELECT run_id FROM _training UNION SELECT run_id FROM _serving)
    UNION ALL
    SELECT 2, run_id, run_group, 'inference', 'operators of a forward pass: ' || calls || '; no backward pass'
    FROM _forward LEFT JOIN _kernels k USING (run_id)
    WHERE coalesce(k.backward + k.cached, 0) = 0
        AND run_id NOT IN (SELECT run_id FROM _training UNION SELECT run_id FROM _serving)
    UNION ALL
    SELECT
        CASE kind WHEN 'prefill' THEN 3 ELSE 4 END, run_id, run_group, kind,
        'steps: ' || steps || coalesce(', tokens: ' || tokens, '')
    FROM _serving
    UNION ALL
    SELECT 5, run_id, run_group, 'compiled', 'calls of compiled graphs: ' || calls FROM _compiled
    UNION ALL
    SELECT 5, run_id, run_group, 'compiled', 'names of kernels of TorchInductor: ' || triton
    FROM _kernels JOIN _groups USING (run_id)
    WHERE triton > 0 AND run_id NOT IN (SELECT run_id FROM _compiled)
    UNION ALL
    SELECT
        6, run_id, run_group, 'CUDA graphs',
        'replays: ' || calls || coalesce(printf(', %.1f %% of the kernels', 100.0 * replayed / kernels), '')
    FROM _replays LEFT JOIN _graph_work USING (run_id)
    UNION ALL
    SELECT 7, run_id, run_group, 'pipeline', 'kernels of sends and receives: ' || pairs
    FROM _collectives
    WHERE pairs > 0
    UNION ALL
    SELECT
        8, run_id, g.run_group, 'experts', concat_ws(
            ', ', CASE WHEN exchanges > 0 THEN 'all_to_all kernels: ' || exchanges END,
            CASE WHEN moe > 0 THEN 'names of kernels of experts: ' || moe END
        )
    FROM _groups g LEFT JOIN _collectives c USING (run_id) LEFT JOIN _kernels USING (run_id)
    WHERE exchanges > 0 OR moe > 0
    UNION ALL
    SELECT 9, run_id, run_group, 'CPU only', 'operators: ' || sum(calls) || '; no GPU work'
    FROM name_counts
    WHERE type = 'op' AND run_id NOT IN (SELECT run_id FROM _on_gpu UNION SELECT run_id FROM _devices)
    GROUP BY ALL
    UNION ALL
    SELECT 9, run_id, run_group, 'counters only', 'kernels with counters: ' || counted || '; no timeline'
    FROM (
        SELECT run_id, run_group, count(DISTINCT (rank, launch_id)) AS counted FROM ncu_metrics GROUP BY ALL
        UNION ALL
        SELECT run_id, run_group, count(DISTINCT (rank, device, kernel)) FROM metric_summary GROUP BY ALL
    )
    WHERE run_id NOT IN (SELECT run_id FROM gpu_work)
)
SELECT run_id, run_group, turn, kind, any_value(evidence) AS evidence
FROM _facts
GROUP BY ALL;
