-- What does each recording hold, and what is to be borne in mind of its figures?
--
-- A row is a fact. Its verdict: ok; note, where figures have to be read with it in mind; warning, where something is
-- lost or missing. The profiler's own time is the length of Kineto's overhead ranges, which it writes for some of its
-- work only.
-- @column run_id id               The run.
-- @column fact text               What is said.
-- @column verdict text            ok, note or warning.
-- @column value text              What was found.
-- @column meaning text            What follows from it; empty if nothing.
-- @order run_id, turn
-- @use arithmetic, gpu_work, profiler_overhead, recording_facts, step_counts
-- @needs runs that --where and --profiler leave
-- @pass all
WITH spans AS (
    SELECT run_id, sum(span_ns) AS span_ns
    FROM (SELECT run_id, rank, max(start_ns + dur_ns) - min(start_ns) AS span_ns FROM gpu_work GROUP BY run_id, rank)
    GROUP BY run_id
),
overhead AS (
    SELECT run_id, sum(end_ns - start_ns) AS ns FROM profiler_overhead GROUP BY run_id
),
linked AS (
    SELECT w.run_id, count(*) AS n, count(*) FILTER (c.correlation_id IS NULL) AS unlinked
    FROM gpu_work w
    LEFT JOIN (SELECT DISTINCT run_id, rank, correlation_id FROM cuda_calls) c USING (run_id, rank, correlation_id)
    GROUP BY w.run_id
),
classified AS (
    SELECT run_id, sum(dur_ns) AS ns, sum(dur_ns) FILTER (family = 'other') AS other_ns
    FROM kernels JOIN kernel_names USING (run_id, name)
    GROUP BY run_id
),
counted AS (
    SELECT run_id, max(steps) AS most, min(steps) AS least FROM step_counts GROUP BY run_id
),
stacks AS (
    SELECT run_id, bool_or(python_stacks) AS python_stacks FROM recording_facts GROUP BY run_id
),
operators AS (
    SELECT run_id, count(*) AS n, bool_or(input_dims IS NOT NULL) AS shapes FROM cpu_ops GROUP BY run_id
),
memory AS (
    SELECT run_id, count(*) AS n FROM memory_events GROUP BY run_id
),
facts AS (
    SELECT
        run_group, run_id, 0 AS turn, 'status' AS fact,
        CASE WHEN status IN ('failed', 'running') THEN 'warning' ELSE 'ok' END AS verdict, status AS value,
        coalesce(reason, CASE WHEN status = 'running' THEN 'the run did not say that it ended' END) AS meaning
    FROM runs
    WHERE status IS NOT NULL
    UNION ALL
    SELECT run_group, run_id, 1, 'reading', 'warning', 'with losses', warnings FROM runs WHERE warnings <> ''
    UNION ALL
    SELECT
        run_group, run_id, 2, 'ranks', CASE WHEN ranks < world_size THEN 'warning' ELSE 'ok' END,
        concat(ranks, ' of ', coalesce(world_size, ranks)),
        CASE WHEN ranks < world_size THEN 'collectives of missing ranks have no bandwidth and no waiting' END
    FROM runs
    WHERE ranks IS NOT NULL
    UNION ALL
    SELECT
        run_group, run_id, 3, 'training steps', CASE WHEN most IS NULL OR most <> least THEN 'note' ELSE 'ok' END,
        CASE WHEN most IS NULL THEN 'unknown' WHEN most = least THEN most::VARCHAR ELSE concat(least, ' to ', most) END,
        CASE
            WHEN most IS NULL THEN 'nothing can be said per step: no ProfilerStep# and no NVTX range step'
            WHEN most <> least THEN 'ranks hold different numbers of steps'
        END
    FROM runs LEFT JOIN counted USING (run_id)
    UNION ALL
    SELECT
        run_group, run_id, 4, 'time of the profiler itself',
        CASE WHEN coalesce(ns, 0) > 0.02 * span_ns THEN 'note' ELSE 'ok' END,
        CASE WHEN ns IS NULL THEN 'not recorded' ELSE printf('%.1f %% of the span', pct(ns, span_ns)) END,
        CASE WHEN ns > 0.02 * span_ns THEN 'the program runs faster when it is not recorded' END
    FROM runs JOIN spans USING (run_id) LEFT JOIN overhead USING (run_id)
    WHERE profiler = 'torch' AND span_ns > 0
    UNION ALL
    SELECT
        run_group, run_id, 5, 'Python stacks', CASE WHEN python_stacks THEN 'note' ELSE 'ok' END,
        CASE WHEN python_stacks THEN 'recorded' ELSE 'not recorded' END,
        CASE WHEN python_stacks THEN 'host time is longer than it is without them' END
    FROM runs JOIN stacks USING (run_id)
    WHERE profiler = 'torch'
    UNION ALL
    SELECT
        run_group, run_id, 6, 'operators', 'ok',
        concat(format('{:,}', n), CASE WHEN shapes THEN ', with shapes' ELSE ', without shapes' END), NULL
    FROM runs JOIN operators USING (run_id)
    UNION ALL
    SELECT run_group, run_id, 7, 'allocator events', 'ok', format('{:,}', n), NULL FROM runs JOIN memory USING (run_id)
    UNION ALL
    SELECT
        run_group, run_id, 8, 'GPU work', CASE WHEN unlinked > 0.05 * n THEN 'note' ELSE 'ok' END,
        concat(
            format('{:,}', n), ' pieces',
            CASE WHEN unlinked > 0 THEN format(', {:,} without their launch call', unlinked) ELSE '' END
        ),
        CASE WHEN unlinked > 0.05 * n THEN 'they belong to no operator and no phase' END
    FROM runs JOIN linked USING (run_id)
    UNION ALL
    SELECT
        run_group, run_id, 9, 'kernels of no known family', CASE WHEN other_ns > 0.1 * ns THEN 'note' ELSE 'ok' END,
        printf('%.1f %% of kernel time', pct(coalesce(other_ns, 0), ns)),
        CASE WHEN other_ns > 0.1 * ns THEN 'shares of the known families are too low by up to that' END
    FROM runs JOIN classified USING (run_id)
    WHERE ns > 0
)
SELECT run_group, run_id, fact, verdict, value, meaning, turn FROM facts
