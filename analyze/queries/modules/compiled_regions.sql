-- Calls of code that torch.compile compiled, and the GPU work of each.
-- @use intervals, launches

-- @table compiled_marks  a row is a range or operator that Dynamo or compiled code writes.
-- @columns run_group, run_id, rank, pid, tid
-- @column name text               Its name.
-- @columns start_ns, end_ns, dur_ns
-- @column thread index            Number of its thread: faster to join than run, rank and thread.
CREATE TABLE compiled_marks AS
WITH _names AS (
    -- op_sums has each name once.
    SELECT DISTINCT name FROM op_sums WHERE kind IN ('op', 'range') AND regexp_matches(
        name, '^(Torch-Compiled Region|CompiledFunction|## Call CompiledFxGraph|TorchDynamo Cache Lookup)|dynamo_timed'
    )
)
SELECT
    run_group, run_id, rank, pid, tid, name, start_ns, start_ns + dur_ns AS end_ns, dur_ns,
    dense_rank() OVER (ORDER BY run_id, rank, tid) AS thread
FROM call_tree SEMI JOIN _names USING (name)
WHERE kind IN ('op', 'range');

-- @table compiled_regions  a row is a call of compiled code, of the compiler, or a lookup of compiled code, that no
--   other one of its thread contains.
-- A backward graph belongs to the region whose forward recorded it (sequence number).
-- @columns run_group, run_id, rank
-- @column thread index            As in `compiled_marks`.
-- @columns start_ns, end_ns, dur_ns
-- @column region text             Frame / recompilation; (compilation), (guards), or (unknown).
-- @column pass text               forward or backward; NULL outside of compiled code.
CREATE TABLE compiled_regions AS
WITH _outer AS (
    SELECT
        *, CASE
            WHEN name = 'TorchDynamo Cache Lookup' THEN '(guards)' WHEN contains(name, 'dynamo_timed')
                THEN '(compilation)' ELSE nullif(regexp_extract(name, 'Region: (\S+)', 1), '') END AS own_region
    FROM compiled_marks
    QUALIFY coalesce(end_ns > previous_end((thread, pid), start_ns, end_ns), true)
),
-- The forward and backward halves of a graph have one sequence number.
_numbered AS (
    SELECT
        m.thread, m.run_id, m.rank, m.start_ns, m.end_ns, c.sequence_number,
        m.name = 'CompiledFunctionBackward' AS backward
    FROM compiled_marks m
    JOIN cpu_ops c ON c.run_id = m.run_id AND c.rank = m.rank AND c.name = m.name AND c.start_ns = m.start_ns
        AND c.tid IS NOT DISTINCT FROM m.tid
    WHERE starts_with(m.name, 'CompiledFunction') AND c.sequence_number IS NOT NULL
),
_halves AS (
    SELECT n.run_id, n.rank, n.sequence_number, n.backward, o.thread, o.start_ns, o.own_region
    FROM _numbered n ASOF JOIN _outer o ON o.thread = n.thread AND n.start_ns >= o.start_ns
    WHERE n.end_ns <= o.end_ns
),
_forwards AS (
    SELECT run_id, rank, sequence_number, max(own_region) AS region
    FROM _halves WHERE NOT backward GROUP BY ALL
)
SELECT
    o.run_group, o.run_id, o.rank, o.thread, o.start_ns, o.end_ns, o.dur_ns,
    coalesce(o.own_region, f.region, '(unknown)') AS region,
    CASE
        WHEN o.own_region LIKE '(%' THEN NULL WHEN b.start_ns IS NOT NULL OR contains(o.name, 'Backward')
            THEN 'backward' ELSE 'forward' END AS pass
FROM _outer o
LEFT JOIN (
    SELECT thread, start_ns, max(sequence_number) AS sequence_number FROM _halves WHERE backward GROUP BY ALL
) b ON b.thread = o.thread AND b.start_ns = o.start_ns
LEFT JOIN _forwards f
    ON f.run_id = o.run_id AND f.rank = o.rank AND f.sequence_number = b.sequence_number;

-- @view compiled_work  a row is a kernel, memcpy or memset of a rank with compiled code.
-- @columns run_group, run_id, rank
-- @column kind text               kernel, memcpy or memset.
-- @column name text               Short name of the kernel, or copy or fill.
-- @columns dur_ns
-- @column inside bool             Whether a region launched it.
-- @column region text             The region, or (not compiled).
-- @column pass text               forward or backward; NULL outside of compiled code.
CREATE VIEW compiled_work AS
WITH _placed AS (
    SELECT
        w.run_group, w.run_id, w.rank, w.kind, w.short_name AS name, w.dur_ns, t.thread, w.from_ns, w.from_end_ns
    FROM (SELECT * FROM work_origins SEMI JOIN compiled_marks USING (run_id, rank)) w
    LEFT JOIN (SELECT DISTINCT run_id, rank, tid, thread FROM compiled_marks) t
        ON t.run_id = w.run_id AND t.rank = w.rank AND t.tid IS NOT DISTINCT FROM w.from_tid
)
SELECT
    w.run_group, w.run_id, w.rank, w.kind, w.name, w.dur_ns,
    w.from_ns < r.end_ns AND w.from_end_ns <= r.end_ns IS TRUE AS inside,
    CASE WHEN inside THEN r.region ELSE '(not compiled)' END AS region, CASE WHEN inside THEN r.pass END AS pass
FROM _placed w ASOF LEFT JOIN compiled_regions r ON r.thread = w.thread AND w.from_ns >= r.start_ns;
