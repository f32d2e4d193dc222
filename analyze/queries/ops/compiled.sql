-- What do the graphs of torch.compile cost, and which operators are in their kernels?
--
-- A region is a call of compiled code: F/N is frame F and recompilation N (0: the first compilation). Several frames in
-- a step are several graphs: from graph breaks, or several calls of torch.compile. A backward graph belongs to the
-- region whose forward recorded it (sequence number). `(not compiled)` is all other GPU work, so that gpu_ns adds up.
-- `(compilation)` are Dynamo's and Inductor's own ranges: code that was compiled during the recording. `(guards)` are
-- lookups of compiled code. The operators in the name of a Triton kernel share its time; none has a time of its own.
-- @param group region|kernel = region   What a row is: a region's pass, or a kernel in it.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column region text             Frame / recompilation.
-- @column pass text               forward or backward.
-- @column kernel text             Short name of the kernel, or copy or fill; empty for group=region.
-- @column kind text               Kind of Triton kernel, by its name; library: another kernel.
-- @column ops text                Operators in the kernel's name.
-- @column calls count             Calls of the region; empty for group=kernel.
-- @column cpu_ns ns               CPU time of the calls; empty for group=kernel.
-- @column launches count          Kernels, copies and fills.
-- @column triton_ns ns            Durations of the Triton kernels among them.
-- @column gpu_ns ns               Durations of all of them.
-- @column gpu_time_pct %          Share of all GPU work of the rank.
-- @main region, pass, kernel, ops, calls, launches, triton_ns, gpu_ns, gpu_time_pct
-- @order run_id, rank, gpu_ns DESC, cpu_ns DESC, region, pass, kernel
-- @use arithmetic, inductor, intervals, launches
-- @needs compiled code (torch.compile)
-- @full operators
WITH mark_names AS (
    -- op_sums has each name once.
    SELECT DISTINCT name FROM op_sums WHERE kind IN ('op', 'range') AND regexp_matches(
        name, '^(Torch-Compiled Region|CompiledFunction|## Call CompiledFxGraph|TorchDynamo Cache Lookup)|dynamo_timed'
    )
),
marks AS MATERIALIZED (
    SELECT run_group, run_id, rank, pid, tid, name, start_ns, start_ns + dur_ns AS end_ns, dur_ns
    FROM call_tree SEMI JOIN mark_names USING (name)
    WHERE kind IN ('op', 'range')
),
threads AS (
    SELECT row_number() OVER () AS thread, * FROM (SELECT DISTINCT run_id, rank, tid FROM marks)
),
outer_marks AS (
    SELECT
        m.*, thread, CASE
            WHEN name = 'TorchDynamo Cache Lookup' THEN '(guards)' WHEN contains(name, 'dynamo_timed')
                THEN '(compilation)' ELSE nullif(regexp_extract(name, 'Region: (\S+)', 1), '') END AS own_region
    FROM marks m
    JOIN threads t ON t.run_id = m.run_id AND t.rank = m.rank AND t.tid IS NOT DISTINCT FROM m.tid
    QUALIFY coalesce(end_ns > previous_end((thread, pid), start_ns, end_ns), true)
),
-- The forward and backward halves of a graph have one sequence number.
numbered AS (
    SELECT
        t.thread, m.run_id, m.rank, m.start_ns, m.end_ns, c.sequence_number,
        m.name = 'CompiledFunctionBackward' AS backward
    FROM marks m
    JOIN threads t ON t.run_id = m.run_id AND t.rank = m.rank AND t.tid IS NOT DISTINCT FROM m.tid
    JOIN cpu_ops c ON c.run_id = m.run_id AND c.rank = m.rank AND c.name = m.name AND c.start_ns = m.start_ns
        AND c.tid IS NOT DISTINCT FROM m.tid
    WHERE starts_with(m.name, 'CompiledFunction') AND c.sequence_number IS NOT NULL
),
halves AS (
    SELECT n.run_id, n.rank, n.sequence_number, n.backward, o.thread, o.start_ns, o.own_region
    FROM numbered n ASOF JOIN outer_marks o ON o.thread = n.thread AND n.start_ns >= o.start_ns
    WHERE n.end_ns <= o.end_ns
),
forwards AS (
    SELECT run_id, rank, sequence_number, max(own_region) AS region
    FROM halves WHERE NOT backward GROUP BY ALL
),
regions AS (
    SELECT
        o.run_group, o.run_id, o.rank, o.thread, o.start_ns, o.end_ns, o.dur_ns,
        coalesce(o.own_region, f.region, '(unknown)') AS region,
        CASE
            WHEN o.own_region LIKE '(%' THEN NULL WHEN b.start_ns IS NOT NULL OR contains(o.name, 'Backward')
                THEN 'backward' ELSE 'forward' END AS pass
    FROM outer_marks o
    LEFT JOIN (
        SELECT thread, start_ns, max(sequence_number) AS sequence_number FROM halves WHERE backward GROUP BY ALL
    ) b ON b.thread = o.thread AND b.start_ns = o.start_ns
    LEFT JOIN forwards f
        ON f.run_id = o.run_id AND f.rank = o.rank AND f.sequence_number = b.sequence_number
),
linked AS (
    SELECT * FROM work_origins SEMI JOIN marks USING (run_id, rank)
),
placed AS (
    SELECT
        w.run_group, w.run_id, w.rank, w.kind, w.short_name AS name, w.dur_ns, t.thread, w.from_ns, w.from_end_ns
    FROM linked w
    LEFT JOIN threads t ON t.run_id = w.run_id AND t.rank = w.rank AND t.tid IS NOT DISTINCT FROM w.from_tid
),
work AS (
    SELECT
        w.run_group, w.run_id, w.rank, w.kind, w.name, w.dur_ns,
        w.from_ns < r.end_ns AND w.from_end_ns <= r.end_ns IS TRUE AS inside,
        CASE WHEN inside THEN r.region ELSE '(not compiled)' END AS region, CASE WHEN inside THEN r.pass END AS pass
    FROM placed w ASOF LEFT JOIN regions r ON r.thread = w.thread AND w.from_ns >= r.start_ns
),
parts AS (
    SELECT run_group, run_id, rank, region, pass, kind, name, dur_ns AS gpu_ns, 0 AS cpu_ns, 0 AS calls FROM work
    UNION ALL
    SELECT run_group, run_id, rank, region, pass, NULL, NULL, 0, dur_ns, 1 FROM regions WHERE '{group}' = 'region'
),
sums AS (
    SELECT
        run_group, run_id, rank, region, pass, CASE WHEN '{group}' = 'kernel' THEN name END AS kernel,
        any_value(kind) AS kind, sum(calls)::BIGINT AS calls, sum(cpu_ns)::BIGINT AS cpu_ns,
        count(name) AS launches,
        coalesce(sum(gpu_ns) FILTER (starts_with(name, 'triton_')), 0)::BIGINT AS triton_ns,
        sum(gpu_ns)::BIGINT AS gpu_ns
    FROM parts
    GROUP BY run_group, run_id, rank, region, pass, kernel
)
SELECT
    run_group, run_id, rank, region, pass, kernel,
    CASE WHEN kernel IS NOT NULL AND kind = 'kernel' THEN coalesce(triton_kind(kernel), 'library') END AS kind,
    nullif(array_to_string(fused_ops(kernel), ', '), '') AS ops,
    CASE WHEN '{group}' = 'region' THEN calls END AS calls, CASE WHEN '{group}' = 'region' THEN cpu_ns END AS cpu_ns,
    launches, triton_ns, gpu_ns, pct(gpu_ns, sum(gpu_ns) OVER (PARTITION BY run_id, rank)) AS gpu_time_pct
FROM sums
