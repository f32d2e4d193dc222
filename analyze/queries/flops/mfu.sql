-- Which share of its GPUs' peak does the model use?
--
-- MFU (model FLOPs utilization) = model FLOPs / (step time x GPUs x peak). HFU (hardware FLOPs utilization) also counts
-- recomputation: forward operators that activation checkpointing runs again, and the scores in the backward of
-- attention. Model FLOPs are those of `flops-by-op` (causal attention counts half) of the operators that launched GPU
-- work in the steps, or of all such operators in recordings without steps. GPU work without a known operator (CUDA
-- graphs, custom kernels) is missing; the note gives its share of the time of gemm, convolution and attention kernels.
-- With flops_per_token and tokens_per_step, model FLOPs are their product x steps. The peak is that of the operators'
-- input types, for dense matrices, with tensor cores if the GPU has them; with several types, each operation is
-- compared with its own peak. A GPU without published peaks has no MFU, unless peak_tflops is given. The profiler makes
-- steps longer: if the collector timed steps without it, their mean gives the undisturbed MFU. Waiting that is an
-- artifact of the recording is not in the time: before all ranks had begun to record, and in a cold first call (see
-- `breakdown`). With a GPU-only block, steps are from that block, and FLOPs from the twins of its work.
-- @param per run|rank|step = run  What a row is: a run, a rank, or a step of a rank.
-- @param flops_per_token number[0..1e15] = 0   Model FLOPs per token, forward and backward, about 6 x parameters; 0:
--                                 from the shapes.
-- @param tokens_per_step number[0..1e9] = 0   Mean tokens per step of one rank.
-- @param precision auto|fp64|fp32|tf32|fp16|bf16|fp8|int8|fp4 = auto   Type whose peak is used; auto: the types of the
--                                 operators' inputs.
-- @param peak_tflops number[0..1e9] = 0   Peak of one GPU in TFLOP/s; 0: the published peak.
-- @column run_id id               The run.
-- @column rank index              Process rank; empty for per=run.
-- @column step index              Step; empty unless per=step.
-- @column gpu_name text           GPU.
-- @column gpus count              GPUs with work.
-- @column undisturbed_step_ns ns  Mean length of a step without the profiler; empty if none was timed.
-- @column avg_step_ns ns          Mean length of a recorded step; for a recording without steps, its length.
-- @column gpu_time_ns ns          Step time x GPUs, summed over steps and ranks.
-- @column model_flops FLOP        FLOPs of the model; recomputation is not counted.
-- @column recomputed_flops FLOP   FLOPs of recomputation, from the shapes.
-- @column unknown_calls count     Calls whose FLOPs are not known, or only an upper bound; they count 0.
-- @column precision text          Roofs that the operations are compared with.
-- @column peak_flops_per_s FLOP/s Peak of a GPU; with several roofs, the mean rate of the operations at their peaks.
-- @column flops_per_s FLOP/s      Model FLOPs per GPU and second.
-- @column undisturbed_mfu_pct %   Model FLOPs utilization in undisturbed steps.
-- @column mfu_pct %               Model FLOPs utilization in the recorded steps.
-- @column undisturbed_hfu_pct %   Hardware FLOPs utilization in undisturbed steps.
-- @column hfu_pct %               Hardware FLOPs utilization in the recorded steps.
-- @column note text               Why a figure is missing or incomplete.
-- @main run_id, undisturbed_step_ns, avg_step_ns, model_flops, precision, undisturbed_mfu_pct, mfu_pct,
--     undisturbed_hfu_pct, hfu_pct, note
-- @order run_id, rank, step
-- @use arithmetic, device_peaks, gpu_timeline, intervals, known_devices, op_flops, peaks, profiler_cost, steps
-- @needs work on GPUs (and operators with input shapes, or flops_per_token)
-- @pass gpu
-- @disturbed step time
WITH gpus AS (
    SELECT run_group, run_id, rank, count(device) AS gpus, min(first_ns) AS first_ns, max(last_ns) AS last_ns
    FROM gpu_tracks
    GROUP BY ALL
),
op_work AS MATERIALIZED (
    SELECT w.run_id, w.rank, w.flop_call AS call, w.correlation_id, w.call_start_ns,
        CASE WHEN w.graph IS NOT NULL THEN w.correlation_id END AS replay, w.start_ns, w.dur_ns, p.is_product,
        coalesce(p.is_tf32, false) AS is_tf32
    FROM gpu_work w LEFT JOIN kernel_precisions p ON p.run_id = w.run_id AND p.name = w.name
    WHERE w.kind = 'kernel' AND (w.flop_call IS NOT NULL OR p.is_product)
),
launched AS (
    SELECT run_id, rank, call, bool_or(is_tf32) AS tf32 FROM op_work WHERE call IS NOT NULL GROUP BY run_id, rank, call
),
recomputed AS (
    SELECT c.run_id, c.rank, c.call
    FROM op_calls c
    ASOF JOIN recomputed_ops r
        ON r.run_id = c.run_id AND r.rank = c.rank AND r.tid = c.tid AND c.start_ns >= r.start_ns
    WHERE c.start_ns < r.start_ns + r.dur_ns
),
windows AS (
    SELECT run_id, rank, step, start_ns, end_ns FROM step_windows SEMI JOIN gpus USING (run_id, rank)
    UNION ALL
    SELECT g.run_id, g.rank, NULL, coalesce(least(first_ns, c.start_ns), first_ns), last_ns
    FROM gpus g
    LEFT JOIN (
        SELECT run_id, rank, min(start_ns) AS start_ns
        FROM (
            SELECT run_id, rank, start_ns
            FROM op_calls SEMI JOIN launched USING (run_id, rank, call)
            WHERE graph IS NULL
            UNION ALL
            SELECT run_id, rank, call_start_ns FROM op_work WHERE call IS NOT NULL AND replay IS NOT NULL
        )
        ANTI JOIN twins USING (run_id, rank)
        GROUP BY ALL
    ) c USING (run_id, rank)
    ANTI JOIN step_windows s ON s.run_id = g.run_id AND s.rank = g.rank
),
tracked_windows AS (
    SELECT row_number() OVER () AS window_id, track, w.start_ns, w.end_ns
    FROM windows w JOIN gpu_tracks USING (run_id, rank)
    WHERE track IN (SELECT track FROM artificial_waits)
),
-- Mean over the GPUs of the rank.
excluded AS (
    SELECT
        w.run_id, w.rank, v.start_ns AS window_ns, sum(c.end_ns - c.start_ns) AS ns
    FROM intervals_clip('artificial_waits', 'tracked_windows') c
    JOIN tracked_windows v USING (window_id)
    JOIN gpu_tracks w ON w.track = v.track
    GROUP BY ALL
),
products AS (
    SELECT
        k.run_id, k.rank, w.start_ns AS window_ns, sum(dur_ns) AS all_ns,
        sum(dur_ns) FILTER (call IS NOT NULL) AS called_ns
    FROM (SELECT * FROM op_work WHERE is_product) k
    ASOF JOIN windows w ON w.run_id = k.run_id AND w.rank = k.rank AND k.start_ns >= w.start_ns
    WHERE k.start_ns < w.end_ns
    GROUP BY ALL
),
-- In a GPU-only block, the step of a call is that of the work whose twin it launched.
in_windows AS (
    SELECT c.run_id, c.rank, c.call, w.start_ns AS window_ns
    FROM op_calls c
    ASOF JOIN windows w ON w.run_id = c.run_id AND w.rank = c.rank AND c.start_ns >= w.start_ns
    WHERE c.start_ns < w.end_ns AND c.graph IS NULL AND (c.run_id, c.rank) NOT IN (SELECT (run_id, rank) FROM twins)
    UNION ALL
    -- The replay of a CUDA graph runs its calls when it is launched.
    SELECT r.run_id, r.rank, r.call, w.start_ns
    FROM (
        SELECT DISTINCT run_id, rank, call, replay, call_start_ns
        FROM op_work ANTI JOIN twins USING (run_id, rank)
        WHERE call IS NOT NULL AND replay IS NOT NULL
    ) r
    ASOF JOIN windows w ON w.run_id = r.run_id AND w.rank = r.rank AND r.call_start_ns >= w.start_ns
    WHERE r.call_start_ns < w.end_ns
    UNION ALL
    SELECT run_id, rank, call, window_ns
    FROM (
        SELECT DISTINCT o.run_id, o.rank, o.call, o.replay, w.start_ns AS window_ns
        FROM op_work o
        JOIN twins t USING (run_id, rank, correlation_id)
        LEFT JOIN step_ranges s USING (run_id, rank, turn)
        JOIN windows w ON w.run_id = o.run_id AND w.rank = o.rank AND (w.step IS NULL OR w.start_ns = s.start_ns)
        WHERE o.call IS NOT NULL
    )
),
placed AS (
    SELECT
        c.run_id, c.rank, w.window_ns, c.model_flops,
        CASE WHEN again.call IS NULL THEN c.rescored_flops ELSE c.model_flops END AS again_flops,
        CASE WHEN '{precision}' = 'auto' THEN compute_roofs(c.type, l.tf32)
            ELSE ['tensor_{precision}', '{precision}'] END AS roofs
    FROM op_calls c
    JOIN launched l USING (run_id, rank, call)
    JOIN in_windows w USING (run_id, rank, call)
    LEFT JOIN recomputed again USING (run_id, rank, call)
),
held AS (
    SELECT
        p.*, CASE WHEN $peak_tflops > 0 THEN 'given' ELSE list_filter(roofs, lambda r : k.peak[r] IS NOT NULL)[1] END
            AS roof,
        CASE WHEN $peak_tflops > 0 THEN $peak_tflops * 1e12 ELSE k.peak[roof] END AS rate
    FROM placed p LEFT JOIN published_peaks k USING (run_id)
),
sums AS (
    SELECT
        run_id, rank, window_ns, coalesce(sum(model_flops - again_flops), 0)::BIGINT AS model_flops,
        coalesce(sum(again_flops), 0)::BIGINT AS again_flops, count(*) FILTER (model_flops IS NULL) AS unknown_calls,
        fsum(model_flops / rate) AS ideal_s, sum(model_flops)::DOUBLE AS seen_flops,
        list(DISTINCT roof) FILTER (roof IS NOT NULL AND model_flops > 0) AS seen_roofs,
        bool_or(roof IS NULL AND model_flops > 0) AS unheld
    FROM held
    GROUP BY ALL
),
-- Given FLOPs are compared with the peak of the recorded operators, else with the peak of the given precision.
steps AS (
    SELECT
        g.run_group, g.run_id, g.rank, w.step, r.gpu_name, g.gpus,
        round(coalesce(e.ns, 0) / g.gpus)::BIGINT AS excluded_ns, w.end_ns - w.start_ns - excluded_ns AS step_ns,
        CASE WHEN w.step IS NOT NULL THEN u.undisturbed_step_ns END AS undisturbed_step_ns,
        $flops_per_token > 0 AND $tokens_per_step > 0 AS given,
        CASE WHEN given THEN TRY_CAST(round($flops_per_token * $tokens_per_step) AS BIGINT)
            ELSE coalesce(s.model_flops, 0) END AS model_flops,
        coalesce(s.again_flops, 0) AS again_flops, coalesce(s.unknown_calls, 0) AS unknown_calls,
        coalesce(t.all_ns, 0) AS products_ns, coalesce(t.called_ns, 0) AS called_ns,
        coalesce(s.seen_flops, 0) = 0 AS unseen, s.seen_roofs,
        coalesce(s.unheld, false) OR k.peak IS NULL AND $peak_tflops = 0 AS unheld,
        CASE
            WHEN s.seen_flops > 0 THEN s.seen_flops / s.ideal_s
            WHEN $peak_tflops > 0 THEN $peak_tflops * 1e12
            WHEN '{precision}' <> 'auto' THEN coalesce(k.peak['tensor_{precision}'], k.peak['{precision}'])
        END AS rate
    FROM gpus g
    JOIN windows w USING (run_id, rank)
    JOIN runs r ON r.run_id = g.run_id
    LEFT JOIN excluded e ON e.run_id = w.run_id AND e.rank = w.rank AND e.window_ns = w.start_ns
    LEFT JOIN sums s ON s.run_id = w.run_id AND s.rank = w.rank AND s.window_ns = w.start_ns
    LEFT JOIN products t ON t.run_id = w.run_id AND t.rank = w.rank AND t.window_ns = w.start_ns
    LEFT JOIN published_peaks k ON k.run_id = g.run_id
    LEFT JOIN (SELECT run_id, rank, undisturbed_step_ns FROM step_costs) u USING (run_id, rank)
),
keyed AS (
    SELECT
        *, CASE WHEN '{per}' <> 'run' THEN rank END AS row_rank, CASE WHEN '{per}' = 'step' THEN step END AS row_step
    FROM steps
),
totals AS (
    SELECT
        run_group, run_id, row_rank AS rank, row_step AS step, any_value(gpu_name) AS gpu_name,
        sum(gpus) FILTER (first_of_rank)::BIGINT AS gpus, avg(step_ns) AS avg_step_ns,
        sum(step_ns * gpus)::BIGINT AS gpu_time_ns, sum(excluded_ns * gpus)::BIGINT AS excluded_ns,
        CASE WHEN bool_and(undisturbed_step_ns IS NOT NULL) THEN avg(undisturbed_step_ns) END AS undisturbed_step_ns,
        CASE WHEN bool_and(undisturbed_step_ns IS NOT NULL) THEN sum(undisturbed_step_ns * gpus) END
            AS undisturbed_gpu_time_ns,
        CASE WHEN NOT bool_and(unseen) OR bool_or(given) THEN TRY_CAST(sum(model_flops) AS BIGINT) END AS model_flops,
        CASE WHEN NOT bool_and(unseen) THEN sum(again_flops)::BIGINT END AS recomputed_flops,
        pct(sum(products_ns - called_ns), sum(products_ns)) AS uncalled_pct,
        sum(unknown_calls)::BIGINT AS unknown_calls, list_sort(list_distinct(flatten(list(seen_roofs)))) AS roofs,
        -- Several roofs: the rate if each operation ran at its peak.
        CASE WHEN NOT bool_or(unheld)
            THEN sum(model_flops + again_flops) / nullif(fsum((model_flops + again_flops) / rate), 0) END AS peak,
        bool_or(unheld) AS unheld, bool_or(given) AS given
    FROM (SELECT *, row_number() OVER (PARTITION BY run_id, rank, row_step) = 1 AS first_of_rank FROM keyed)
    GROUP BY run_group, run_id, row_rank, row_step
),
known AS (
    SELECT string_agg(name, ', ' ORDER BY name) AS names FROM known_devices
)
SELECT
    run_group, run_id, rank, step, gpu_name, gpus, undisturbed_step_ns, avg_step_ns, gpu_time_ns, model_flops,
    recomputed_flops, unknown_calls, array_to_string(roofs, ', ') AS precision, peak AS peak_flops_per_s,
    model_flops * 1e9 / nullif(gpu_time_ns, 0) AS flops_per_s,
    100e9 * model_flops / nullif(undisturbed_gpu_time_ns, 0) / peak AS undisturbed_mfu_pct,
    100 * flops_per_s / peak AS mfu_pct,
    100e9 * (model_flops + recomputed_flops) / nullif(undisturbed_gpu_time_ns, 0) / peak AS undisturbed_hfu_pct,
    100e9 * (model_flops + recomputed_flops) / nullif(gpu_time_ns, 0) / peak AS hfu_pct,
    nullif(concat_ws(
        '; ',
        CASE WHEN model_flops IS NULL THEN 'no operator with a FLOP formula launched GPU work in the steps; give '
            'flops_per_token and tokens_per_step' END,
        CASE WHEN model_flops IS NOT NULL AND uncalled_pct >= 1 AND NOT given THEN printf(
            'lower bound: %.0f %% of the time of matrix and attention kernels has no operator with known FLOPs '
            '(CUDA graphs, custom kernels, launches before the recording)', uncalled_pct
        ) END,
        CASE WHEN excluded_ns > 0 THEN printf(
            'without %.3f ms of waiting (summed over GPUs) before all ranks had begun to record or in a cold '
            'first call',
            excluded_ns / 1e6
        ) END,
        CASE WHEN unknown_calls > 0 AND NOT given THEN unknown_calls || ' calls without shapes are not counted' END,
        CASE
            WHEN NOT unheld THEN NULL
            WHEN gpu_name IS NULL THEN 'the recording does not name its GPU; give peak_tflops'
            WHEN gpu_name NOT IN (SELECT p.gpu_name FROM device_peaks p)
                THEN gpu_name || ' has no published peaks here; give peak_tflops, or add it to schemas/devices.toml, '
                    || 'which has ' || names
            ELSE gpu_name || ' has no published peak for a type that was used; give peak_tflops'
        END,
        CASE WHEN given AND peak IS NULL AND NOT unheld THEN 'unknown type; give precision or peak_tflops' END
    ), '') AS note
FROM totals, known
