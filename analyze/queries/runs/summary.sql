-- How long is a step, how busy are the GPUs, and what do they achieve?
--
-- A row is a recording: all runs of one workload, each figure from the block or pass that measures it best. Times,
-- shares and MFU are those of the GPU-only block if there is one; tokens and memory those of the full block. Shares are
-- means over the GPUs: of their steps, or of the whole recording if it has no steps (see `breakdown`). Figures of
-- several ranks are means over the ranks; images are those of all ranks together.
-- @column run_id id               The run; of several blocks or passes, the full one.
-- @column ranks count             Ranks that were ingested.
-- @column gpus count              GPUs with work.
-- @column steps count             Recorded training steps of a rank.
-- @column undisturbed_step_ns ns  Mean training step without the profiler; empty if none was timed.
-- @column avg_step_ns ns          Mean recorded training step.
-- @column span_ns ns              Length of the recording: first start to last end of the work of a GPU (mean over
--                                 GPUs), else of the operators and ranges on the CPU.
-- @column compute_pct %           Share of the time with compute kernels.
-- @column exposed_comm_pct %      Share with communication and no compute.
-- @column exposed_memcpy_pct %    Share with memcpys or memsets and no kernel.
-- @column idle_pct %              Share without any work, as recorded.
-- @column undisturbed_idle_pct %  The same in undisturbed steps; empty if none was timed.
-- @column undisturbed_mfu_pct %   Model FLOPs utilization in undisturbed steps; empty if none was timed.
-- @column mfu_pct %               Model FLOPs utilization in the recorded steps; empty without steps.
-- @column images_per_s images/s   Images of all ranks per second: in undisturbed steps if some were timed, else in the
--                                 recorded ones.
-- @column prefill_tokens_per_s number   Tokens per second of prefill steps of a rank (see `serving`).
-- @column decode_tokens_per_s number    Tokens per second of decode steps of a rank.
-- @column peak_bytes B            Most bytes allocated on one GPU.
-- @column peak_reserved_bytes B   Most bytes reserved on one GPU: by the caching allocator, or from the driver.
-- @column peak_cpu_bytes B        Most bytes that the CPU allocator had allocated in one process.
-- @column held_bytes B            Most bytes allocated on one GPU when a memory snapshot was written.
-- @column oom_bytes B             The request that failed when a GPU's memory ran out; of several ranks and GPUs, the
--                                 last one of the GPU that held most.
-- @column oom text                Its cause (see `memory-oom`), and who held most of the memory.
-- @column counted_kernels count   Launches with counters (Nsight Compute), where no pass timed the GPU.
-- @column counted_ns ns           Sum of their durations; empty unless all were measured.
-- @column summed_kernels count    Kernel calls of logs with sums only (nvprof).
-- @column summed_ns ns            Their time.
-- @column hung_groups count       Process groups with a collective that not all ranks completed; empty without dumps
--                                 of the flight recorder.
-- @column hang text               The first of these collectives, and the ranks that did not reach it or called
--                                 another.
-- @main run_id, undisturbed_step_ns, avg_step_ns, compute_pct, exposed_comm_pct, idle_pct, mfu_pct, peak_bytes, ranks
-- @order run_id
-- @use allocator, arithmetic, block_limits, gpu_timeline, hangs, memory, ncu, profiler_cost, steps, time_sums
-- @answer flops_used mfu
-- @answer peaks_of_memory memory-peak
-- @answer inference serving
-- @answer hung hang
-- @answer held memory-fragmentation
-- @answer failed_requests memory-oom
-- @needs runs that --where and --profiler leave
-- @pass all
-- @drill undisturbed_step_ns steps run_id={run_id}
-- @drill avg_step_ns steps run_id={run_id}
-- @drill mfu_pct mfu run_id={run_id}
-- @drill peak_bytes memory-peak run_id={run_id}
-- @drill oom_bytes memory-oom run_id={run_id}
WITH passes AS (
    SELECT
        run_group, run_id, ranks, profiler, coalesce(workload_id, run_id::VARCHAR) AS workload,
        coalesce(list_position(['torch', 'nsys', 'rocprof', 'nvprof', 'gpu', 'none', 'ncu'], profiler), 0) AS full_first
    FROM runs
),
few_twins AS (
    SELECT run_id
    FROM twins
    GROUP BY run_id
    HAVING 100 * count(full_start_ns) < (SELECT twins_pct FROM block_limits) * count(*)
),
spans AS (
    SELECT run_id, count(*) AS gpus, avg(w.end_ns - w.start_ns - coalesce(cold_ns, 0)) AS span_ns
    FROM gpu_windows_span w JOIN gpu_tracks USING (track) LEFT JOIN gpu_cold_span USING (window_id)
    GROUP BY run_id
),
-- Counters are recorded kernel by kernel, with the program stopped in between: no times are theirs.
timing AS (
    SELECT run_group, workload, run_id
    FROM passes LEFT JOIN spans USING (run_id)
    WHERE profiler IS DISTINCT FROM 'ncu'
    QUALIFY row_number() OVER (
        PARTITION BY run_group, workload
        ORDER BY gpus IS NULL, profiler IS DISTINCT FROM 'gpu' OR run_id IN (FROM few_twins), full_first, run_id
    ) = 1
),
undisturbed AS (
    SELECT
        run_id, CASE WHEN bool_and(undisturbed_ns IS NOT NULL)
            THEN pct(sum(undisturbed_idle_ns), sum(undisturbed_ns)) END AS undisturbed_idle_pct
    FROM gpu_windows_step JOIN gpu_tracks USING (track) LEFT JOIN gpu_undisturbed_step USING (window_id)
    GROUP BY run_id
),
-- The steps of a GPU follow each other: one window for all. In a run without steps, the whole recording.
windows AS MATERIALIZED (
    SELECT track, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM gpu_windows_step GROUP BY track
    UNION ALL
    SELECT track, w.start_ns, w.end_ns
    FROM gpu_windows_span w JOIN gpu_tracks USING (track) ANTI JOIN step_windows USING (run_id)
),
segments AS (
    SELECT
        s.* REPLACE (greatest(s.start_ns, w.start_ns) AS start_ns, least(s.end_ns, w.end_ns) AS end_ns),
        track AS window_id
    FROM gpu_timeline s JOIN windows w USING (track)
    WHERE (s.kernels > 0 OR s.copies > 0) AND s.end_ns > w.start_ns AND s.start_ns < w.end_ns
),
cold AS (
    SELECT track AS window_id, sum(least(c.end_ns, w.end_ns) - greatest(c.start_ns, w.start_ns))::BIGINT AS cold_ns
    FROM cold_waits c JOIN windows w USING (track)
    WHERE c.end_ns > w.start_ns AND c.start_ns < w.end_ns
    GROUP BY track
),
gpu_times AS (
    SELECT
        run_id, w.end_ns - w.start_ns - coalesce(cold_ns, 0) AS length_ns, coalesce(busy_ns, 0) AS busy_ns,
        coalesce(kernel_ns, 0) AS kernel_ns, coalesce(compute_ns, 0) AS compute_ns
    FROM windows w
    JOIN gpu_tracks USING (track)
    LEFT JOIN gpu_lengths_without('segments', 'cold') l ON l.window_id = w.track
),
shares AS (
    SELECT
        run_id, pct(sum(compute_ns), sum(length_ns)) AS compute_pct,
        pct(sum(kernel_ns - compute_ns), sum(length_ns)) AS exposed_comm_pct,
        pct(sum(busy_ns - kernel_ns), sum(length_ns)) AS exposed_memcpy_pct,
        pct(sum(length_ns - busy_ns), sum(length_ns)) AS idle_pct, any_value(undisturbed_idle_pct)
            AS undisturbed_idle_pct
    FROM gpu_times LEFT JOIN undisturbed USING (run_id)
    GROUP BY run_id
),
rank_steps AS (
    SELECT
        run_id, rank, count(*) AS steps, avg(step_ns) AS step_ns, undisturbed_step_ns,
        avg(images) * 1e9 / nullif(coalesce(undisturbed_step_ns, avg(step_ns)), 0) AS images_per_s
    FROM step_times LEFT JOIN (SELECT run_id, rank, undisturbed_step_ns FROM step_costs) USING (run_id, rank)
    WHERE NOT warmup
    GROUP BY run_id, rank, undisturbed_step_ns
),
run_steps AS (
    SELECT
        run_id, max(steps) AS steps, round(avg(step_ns))::BIGINT AS avg_step_ns,
        CASE WHEN bool_and(undisturbed_step_ns IS NOT NULL)
            THEN round(avg(undisturbed_step_ns))::BIGINT END AS undisturbed_step_ns,
        CASE WHEN bool_and(images_per_s IS NOT NULL) THEN sum(images_per_s) END AS images_per_s
    FROM rank_steps
    GROUP BY run_id
),
without_gpus AS (
    SELECT run_id FROM timing ANTI JOIN spans USING (run_id)
),
cpu_spans AS (
    SELECT run_id, max(start_ns + dur_ns) - min(start_ns) AS cpu_ns
    FROM (
        SELECT run_id, start_ns, dur_ns FROM cpu_ops SEMI JOIN without_gpus USING (run_id)
        UNION ALL
        SELECT run_id, start_ns, dur_ns FROM ranges SEMI JOIN without_gpus USING (run_id)
    )
    GROUP BY run_id
),
timed AS (
    SELECT *
    FROM timing
    LEFT JOIN spans USING (run_id)
    LEFT JOIN shares USING (run_id)
    LEFT JOIN run_steps USING (run_id)
    LEFT JOIN cpu_spans USING (run_id)
),
used AS (
    SELECT run_id, mfu_pct, undisturbed_mfu_pct FROM flops_used
),
peaks AS (
    SELECT
        run_id, max(allocated_bytes) FILTER (is_allocator('gpu', device_type)) AS peak_bytes,
        max(reserved_bytes) FILTER (is_allocator('gpu', device_type)) AS peak_reserved_bytes,
        max(allocated_bytes) FILTER (is_allocator('cpu', device_type)) AS peak_cpu_bytes
    FROM peaks_of_memory
    GROUP BY run_id
),
tokens AS (
    SELECT
        run_id, avg(tokens_per_s) FILTER (kind = 'prefill') AS prefill_tokens_per_s,
        avg(tokens_per_s) FILTER (kind = 'decode') AS decode_tokens_per_s
    FROM inference
    GROUP BY run_id
),
snapshots AS (
    SELECT run_id, max(bytes) AS held_bytes
    FROM (SELECT run_id, rank, device, sum(allocated_bytes)::BIGINT AS bytes FROM held GROUP BY ALL)
    GROUP BY run_id
),
exhausted AS (
    SELECT run_id, requested_bytes AS oom_bytes, concat_ws('; ', cause, holders) AS oom
    FROM failed_requests f JOIN exhausted_devices e USING (run_id, rank, device)
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY e.held_bytes DESC, rank, start_ns DESC) = 1
),
counted AS (
    SELECT
        run_id, count(*) AS counted_kernels,
        CASE WHEN count(*) = count(dur_ns) THEN sum(dur_ns)::BIGINT END AS counted_ns
    FROM ncu_launches
    GROUP BY run_id
),
summed AS (
    SELECT run_id, sum(calls)::BIGINT AS summed_kernels, sum(total_ns)::BIGINT AS summed_ns
    FROM kernel_sums
    WHERE run_id IN (SELECT run_id FROM gpu_summary)
    GROUP BY run_id
),
-- The first pass that knows a figure.
known AS (
    SELECT
        run_group, workload, arg_min(run_id, (full_first, run_id)) AS run_id, max(ranks) AS ranks,
        arg_min(mfu_pct, (of_full, full_first)) FILTER (steps > 0) AS mfu_pct,
        arg_min(undisturbed_mfu_pct, (of_full, full_first)) FILTER (steps > 0) AS undisturbed_mfu_pct,
        arg_min(peak_bytes, full_first) AS peak_bytes, arg_min(peak_reserved_bytes, full_first) AS peak_reserved_bytes,
        arg_min(peak_cpu_bytes, full_first) AS peak_cpu_bytes,
        arg_min(prefill_tokens_per_s, full_first) AS prefill_tokens_per_s,
        arg_min(decode_tokens_per_s, full_first) AS decode_tokens_per_s,
        arg_min(held_bytes, full_first) AS held_bytes, arg_min(oom_bytes, full_first) AS oom_bytes,
        arg_min(oom, full_first) AS oom, arg_min(counted_kernels, full_first) AS counted_kernels,
        arg_min(counted_ns, full_first) AS counted_ns, arg_min(summed_kernels, full_first) AS summed_kernels,
        arg_min(summed_ns, full_first) AS summed_ns, arg_min(hung_groups, full_first) AS hung_groups,
        arg_min(hang, full_first) AS hang
    FROM (SELECT *, profiler IS DISTINCT FROM 'gpu' OR run_id IN (FROM few_twins) AS of_full FROM passes)
    LEFT JOIN run_steps USING (run_id)
    LEFT JOIN used USING (run_id)
    LEFT JOIN peaks USING (run_id)
    LEFT JOIN tokens USING (run_id)
    LEFT JOIN snapshots USING (run_id)
    LEFT JOIN exhausted USING (run_id)
    LEFT JOIN counted USING (run_id)
    LEFT JOIN summed USING (run_id)
    LEFT JOIN hung_runs('hung') USING (run_id)
    GROUP BY run_group, workload
)
SELECT
    k.run_group, k.run_id, ranks, gpus, steps, undisturbed_step_ns, avg_step_ns,
    round(coalesce(span_ns, cpu_ns))::BIGINT AS span_ns, compute_pct, exposed_comm_pct, exposed_memcpy_pct, idle_pct,
    undisturbed_idle_pct, undisturbed_mfu_pct, mfu_pct, images_per_s, prefill_tokens_per_s, decode_tokens_per_s,
    peak_bytes, peak_reserved_bytes, peak_cpu_bytes, held_bytes, oom_bytes, oom,
    CASE WHEN gpus IS NULL THEN counted_kernels END AS counted_kernels,
    CASE WHEN gpus IS NULL THEN counted_ns END AS counted_ns, summed_kernels, summed_ns, hung_groups, hang
FROM known k
LEFT JOIN timed t ON t.workload = k.workload AND t.run_group IS NOT DISTINCT FROM k.run_group
