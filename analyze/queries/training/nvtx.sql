-- How long do the NVTX and record_function ranges take, on the CPU and on the GPU?
--
-- The projection of a range is from the start of the first to the end of the last GPU operation whose launch call lies
-- inside the range, on the thread of the range: the definition of `nsys stats -r nvtx_gpu_proj_sum`. The CPU columns
-- are those of nvtx_sum. Nested ranges each count in full. The projection has no work launched by another thread
-- (PyTorch's backward pass, DataParallel's replicas); `phases` counts it. gpu_ns also has the work of the backward pass
-- of the operators in the range, which sequence numbers link (torch.profiler).
-- @column name text               Range, prefixed with its domain (NCCL:ncclBroadcast) unless that is the default one.
-- @column style text              PushPop or StartEnd; a record_function counts as PushPop.
-- @column instances count         Ranges with this name.
-- @column total_ns ns             Sum of their lengths on the CPU.
-- @column avg_ns ns               Mean length.
-- @column min_ns ns               Shortest.
-- @column max_ns ns               Longest.
-- @column range_time_pct %        Share of the lengths of all ranges, nested ones included.
-- @column proj_instances count    Ranges that launched GPU work.
-- @column proj_range_ns ns        Sum of the lengths of these ranges on the CPU.
-- @column proj_total_ns ns        Sum of their projections; empty without GPU work.
-- @column proj_avg_ns ns          Mean projection.
-- @column proj_min_ns ns          Shortest.
-- @column proj_max_ns ns          Longest.
-- @column gpu_ops count           Launches in them with recorded GPU work (a CUDA graph is one).
-- @column gpu_ns ns               Sum of durations of the GPU work that they launched, and of its backward pass.
-- @column backward_ns ns          The part of it in the backward pass, launched outside of the ranges.
-- @main name, instances, total_ns, avg_ns, proj_total_ns, proj_avg_ns, gpu_ops, gpu_ns, backward_ns
-- @order proj_total_ns DESC NULLS LAST, total_ns DESC, name, style
-- @use arithmetic
-- @needs NVTX or record_function ranges
-- @pass nsys
-- @full ranges
-- @plot bars y=name x=total_ns label=range_time_pct per=step,rank
WITH user_ranges AS MATERIALIZED (
    SELECT
        row_number() OVER () AS range_id, run_group, run_id, rank, tid, end_tid, start_ns, start_ns + dur_ns AS end_ns,
        dur_ns, coalesce(domain || ':', '') || coalesce(name, '') AS name, coalesce(style, 'PushPop') AS style
    FROM ranges
    WHERE origin IN ('nvtx', 'record_function', 'profiler_step') AND dur_ns IS NOT NULL
),
-- Bins of time turn the containment join into an equality join. Bins are 4^k ns long; a range is in one or two bins of
-- the first level whose bins are as long as it is. A call looks up its bin at every level in use.
range_cells AS MATERIALIZED (
    SELECT DISTINCT
        range_id, track, start_ns, end_ns, level,
        unnest([(start_ns - origin_ns) >> level, (end_ns - origin_ns) >> level]) AS cell
    FROM (
        SELECT
            *, min(start_ns) OVER () AS origin_ns, dense_rank() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track,
            (2 * ceil(log2(greatest(dur_ns, 1)) / 2))::INTEGER + 2 AS level -- + 2: above any rounding of the logarithm
        FROM user_ranges WHERE end_tid IS NULL
    )
),
threads AS (
    SELECT
        track, any_value(run_id) AS run_id, any_value(rank) AS rank, any_value(tid) AS tid,
        list(DISTINCT level) AS levels, (SELECT min(start_ns) FROM user_ranges WHERE end_tid IS NULL) AS origin_ns
    FROM range_cells JOIN user_ranges USING (range_id)
    GROUP BY track
),
calls AS (
    SELECT
        run_id, rank, call_tid AS tid, call_start_ns AS start_ns, call_start_ns + call_dur_ns AS end_ns,
        start_ns AS first_ns, start_ns + dur_ns AS last_ns, dur_ns, true AS own, first_of_call,
        NULL AS call_tid, NULL AS call_start_ns, NULL AS call_end_ns
    FROM gpu_work
    WHERE call_start_ns IS NOT NULL
    UNION ALL
    SELECT
        run_id, rank, forward_tid, forward_start_ns, forward_start_ns, NULL, NULL, dur_ns, false, false,
        call_tid, call_start_ns, call_start_ns + call_dur_ns
    FROM gpu_work
    WHERE forward_start_ns IS NOT NULL
),
projected AS (
    SELECT
        range_id, max(last_ns) - min(first_ns) AS proj_ns, count(*) FILTER (first_of_call) AS gpu_ops,
        sum(dur_ns) AS gpu_ns, sum(dur_ns) FILTER (NOT own) AS backward_ns
    FROM (SELECT *, unnest(levels) AS level FROM calls JOIN threads USING (run_id, rank, tid)) c
    JOIN range_cells r
        ON r.track = c.track AND r.level = c.level AND r.cell = (c.start_ns - c.origin_ns) >> c.level
        AND r.start_ns <= c.start_ns AND r.end_ns >= c.end_ns
    -- A range that has the launch call of work has the work already.
    WHERE coalesce(c.tid <> c.call_tid OR r.start_ns > c.call_start_ns OR r.end_ns < c.call_end_ns, true)
    GROUP BY range_id
)
SELECT
    run_group, name, style, count(*) AS instances, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS avg_ns,
    min(dur_ns) AS min_ns, max(dur_ns) AS max_ns,
    pct(sum(dur_ns), sum(sum(dur_ns)) OVER (PARTITION BY run_group)) AS range_time_pct,
    count(proj_ns) AS proj_instances,
    sum(dur_ns) FILTER (proj_ns IS NOT NULL)::BIGINT AS proj_range_ns,
    sum(proj_ns)::BIGINT AS proj_total_ns, avg(proj_ns) AS proj_avg_ns, min(proj_ns) AS proj_min_ns,
    max(proj_ns) AS proj_max_ns, coalesce(sum(gpu_ops), 0)::BIGINT AS gpu_ops,
    coalesce(sum(gpu_ns), 0)::BIGINT AS gpu_ns, coalesce(sum(backward_ns), 0)::BIGINT AS backward_ns
FROM user_ranges LEFT JOIN projected USING (range_id)
GROUP BY run_group, name, style
