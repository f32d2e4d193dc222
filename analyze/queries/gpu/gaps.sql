-- Where are the longest gaps on the GPUs, and what did the CPU do meanwhile?
--
-- Gaps and causes as in `idle-causes`. `after_op` is the operator or range that launched the work after the gap. `cpu`
-- is the innermost operator, range or CUDA call for most of the gap, on the thread that launched that work.
-- `profiler_ns` is the part of the gap, up to the return of the launch call, in which the profiler itself worked
-- (buffer requests, flushes, function loading), on that thread or on a thread of its own. If that is more than half of
-- the gap, the cause is profiler, and `cpu` names what the profiler did. In a GPU-only block, `after_op` is the
-- operator of the twin (docs/blocks.md); if the cause is host_wait, `cpu` is the same operator and `cpu_ns` is empty.
-- @param top int[0..999999] = 20  Number of gaps, per group of runs.
-- @param threshold_us number[0..1e9] = 30   Gaps shorter than this (us) with queued work count as kernel_wait.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column start_ns ns             Start of the gap, since the first event of the run (`run_zeros`).
-- @column gap_ns ns               Its length.
-- @column cause text              host_wait, kernel_wait, profiler or other.
-- @column before text             Work that ended at the start of the gap (kernels by their short name).
-- @column after text              Work that began at its end.
-- @column after_op text           Operator or range that launched that work; empty if not known.
-- @column cpu text                What the launching thread (for cause profiler: the profiler) did for most of the gap;
--                                 empty if not known.
-- @column cpu_ns ns               Duration of that, within the gap.
-- @column profiler_ns ns          Part of the gap in which the profiler itself worked on the CPU.
-- @column note text               What inflates host time in this recording; empty for nothing.
-- @main run_id, rank, device, start_ns, gap_ns, cause, after, cpu
-- @order gap_ns DESC, run_id, rank, device, start_ns
-- @use gpu_gaps, gpu_timeline, intervals, launches, profiler_cost, run_zeros
-- @by device
-- @needs work on GPUs with gaps between
-- @pass gpu
-- @disturbed idle time
WITH gaps AS MATERIALIZED (
    SELECT g.*, t.run_group, g.end_ns - g.start_ns AS gap_ns
    FROM gpu_idle g JOIN (SELECT track, run_group FROM gpu_tracks) t USING (track)
),
-- Keep the top gaps of a group and ties, so that few are ranked.
shortest AS (
    SELECT run_group, list_min(max(gap_ns, greatest($top, 1)::BIGINT)) AS least_ns FROM gaps GROUP BY run_group
),
ranked AS MATERIALIZED (
    SELECT g.*
    FROM gaps g JOIN shortest s ON s.run_group IS NOT DISTINCT FROM g.run_group
    WHERE gap_ns >= least_ns
    QUALIFY row_number() OVER (PARTITION BY g.run_group ORDER BY gap_ns DESC, track, start_ns) <= $top
),
launched AS (
    SELECT t.*, g.* EXCLUDE (track, stream), g.end_ns - g.start_ns AS gap_ns
    FROM gap_launches('ranked') g JOIN gpu_tracks t USING (track)
),
longest AS MATERIALIZED (
    SELECT
        *, row_number() OVER (ORDER BY run_group, gap_ns DESC, track, start_ns) AS gap,
        gap_cause(start_ns, end_ns, launch_ns, alone, profiler_ns, $threshold_us * 1000::BIGINT) AS cause
    FROM launched
),
-- Join start and end separately: with an equality on time, the join scans the work once, not once per gap.
edges AS (
    SELECT g.gap, w.short_name AS before, NULL AS after, NULL AS after_op
    FROM longest g JOIN work_origins w
        ON w.run_id = g.run_id AND w.rank = g.rank AND w.device IS NOT DISTINCT FROM g.device
        AND w.start_ns + w.dur_ns = g.start_ns
    WHERE w.dur_ns > 0 OR w.start_ns IN (g.first_ns, g.last_ns)
    UNION ALL
    SELECT g.gap, NULL, w.short_name, CASE WHEN w.op_id > 0 THEN w.op_name END
    FROM longest g JOIN work_origins w
        ON w.run_id = g.run_id AND w.rank = g.rank AND w.device IS NOT DISTINCT FROM g.device
        AND w.start_ns = g.end_ns AND w.correlation_id IS NOT DISTINCT FROM g.correlation_id
    WHERE w.dur_ns > 0 OR w.start_ns IN (g.first_ns, g.last_ns)
),
around AS (
    SELECT gap, min(before) AS before, min(after) AS after, min(after_op) AS after_op FROM edges GROUP BY gap
),
-- Bins of time turn the overlap join into an equality join. A bin is 2^20 ns (1 ms); longer gaps use longer bins, so
-- that a gap has at most about 256 of them.
threads AS MATERIALIZED (
    SELECT
        gap, run_id, rank, launch_tid AS tid, start_ns, end_ns,
        20 + 8 * greatest(0, ceil((log2(end_ns - start_ns) - 28) / 8))::INTEGER AS level
    FROM longest
    WHERE launch_ns IS NOT NULL
),
levels AS (
    SELECT DISTINCT run_id, rank, tid, level FROM threads
),
cells AS (
    SELECT *, unnest(range((start_ns - (1 << 20)) >> level, (end_ns >> level) + 1)) AS cell FROM threads
),
-- unnest keeps DuckDB from joining on the thread alone.
short_events AS (
    SELECT e.run_id, e.rank, e.tid, e.name, e.start_ns, e.start_ns + e.dur_ns AS end_ns, level,
        unnest([e.start_ns >> level]) AS cell
    FROM call_tree e JOIN levels USING (run_id, rank, tid)
    WHERE e.kind NOT IN ('async', 'python') AND e.dur_ns < 1 << 20
),
-- Events shorter than 1 ms that overlap a gap begin less than 1 ms before it; the few longer ones are joined directly.
near AS MATERIALIZED (
    SELECT g.gap AS track, e.name, e.start_ns, e.end_ns
    FROM cells g JOIN short_events e USING (run_id, rank, tid, level, cell)
    WHERE e.start_ns < g.end_ns AND e.end_ns > g.start_ns
    UNION ALL
    SELECT g.gap, e.name, e.start_ns, e.start_ns + e.dur_ns
    FROM threads g JOIN call_tree e ON e.run_id = g.run_id AND e.rank = g.rank AND e.tid = g.tid
    WHERE e.kind NOT IN ('async', 'python') AND e.dur_ns >= 1 << 20
        AND e.start_ns < g.end_ns AND e.start_ns + e.dur_ns > g.start_ns
),
meanwhile AS (
    SELECT gap, i.name, sum(least(i.end_ns, g.end_ns) - greatest(i.start_ns, g.start_ns))::BIGINT AS cpu_ns
    FROM longest g
    JOIN intervals_innermost('near') i ON i.track = g.gap AND i.start_ns < g.end_ns AND i.end_ns > g.start_ns
    GROUP BY gap, i.name
),
recorded AS (
    SELECT
        g.gap, o.name,
        least(
            sum(least(o.start_ns + o.dur_ns, g.end_ns) - greatest(o.start_ns, g.start_ns))::BIGINT,
            any_value(profiler_ns)
        ) AS cpu_ns
    FROM longest g JOIN profiler_overhead o
        ON o.run_id = g.run_id AND o.rank = g.rank AND o.start_ns < g.end_ns
        AND o.start_ns + o.dur_ns > g.start_ns
    WHERE g.cause = 'profiler'
    GROUP BY g.gap, o.name
),
named AS (
    SELECT * FROM recorded UNION ALL SELECT * FROM meanwhile WHERE gap NOT IN (SELECT gap FROM recorded)
),
mostly AS (
    SELECT gap, name AS cpu, cpu_ns
    FROM named
    QUALIFY row_number() OVER (PARTITION BY gap ORDER BY cpu_ns DESC, name) = 1
)
SELECT
    run_group, run_id, rank, device, start_ns - zero_ns AS start_ns, gap_ns,
    cause, before, after, after_op,
    CASE WHEN launch_ns IS NULL AND alone AND cause = 'host_wait' THEN coalesce(cpu, after_op) ELSE cpu END AS cpu,
    cpu_ns, profiler_ns, host_time_note(python_stacks) AS note
FROM longest
JOIN run_zeros USING (run_id)
LEFT JOIN around USING (gap)
LEFT JOIN mostly USING (gap)
LEFT JOIN (SELECT run_id, rank, python_stacks FROM recording_facts) USING (run_id, rank)
