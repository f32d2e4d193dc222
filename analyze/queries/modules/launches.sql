-- Calls that launch GPU work, the operators that make them, and the queue of a stream. gpu_work has the launch call and
-- operator of each kernel, copy and fill.
--
-- What launched the work of a GPU-only block is in the full block of the same program. Its times are on the clock of
-- the full block: compare them with each other, not with those of GPU work.
-- @use api_roles

-- @view launching_ops  a row is an operator that may have launched work in gpu_work: one of the run, also while its
--   CUDA graphs were captured; of a GPU-only block, one of its full block.
-- @column * of cpu_ops
CREATE VIEW launching_ops AS
SELECT * FROM cpu_ops
UNION ALL
SELECT * FROM captured_ops
UNION ALL
SELECT * FROM full_cpu_ops
UNION ALL
SELECT * FROM full_captured_ops;

-- @view launching_ranges  a row is a range around calls that may have launched work in gpu_work, as in launching_ops.
-- The steps of a GPU-only block are its own.
-- @column * of ranges
CREATE VIEW launching_ranges AS
SELECT * FROM ranges
UNION ALL
SELECT * FROM captured_ranges
UNION ALL
SELECT * FROM full_ranges WHERE origin <> 'profiler_step'
UNION ALL
SELECT * FROM full_captured_ranges;

-- @view twin_launches  a row is a correlation id of GPU work of a GPU-only block.
-- @columns run_id, rank, correlation_id
-- @column twin_ns ns              Start of the launch call of its twin, on the clock of the full block.
CREATE VIEW twin_launches AS
SELECT run_id, rank, correlation_id, min(full_call_start_ns) AS twin_ns
FROM twins
WHERE correlation_id > 0 AND full_call_start_ns IS NOT NULL
GROUP BY run_id, rank, correlation_id;

-- @macro launch_calls(t)  the launch calls of the GPU work with the correlation ids of a table `t`.
-- @columns run_id, rank, correlation_id, tid
-- @column name text               Runtime or driver function.
-- @columns start_ns, dur_ns
CREATE MACRO launch_calls(t) AS TABLE
SELECT DISTINCT
    run_id, rank, correlation_id, call_tid AS tid, call_name AS name, call_start_ns AS start_ns, call_dur_ns AS dur_ns
FROM gpu_work SEMI JOIN query_table(t) USING (run_id, rank, correlation_id)
WHERE call_start_ns IS NOT NULL;

-- @view blocking_calls  a row is a call that returns only when a device, stream or event is done, or a synchronous
--   copy.
-- @columns run_id, rank, run_group
-- @column name text               Name.
-- @column api text                runtime or driver.
-- @column waits_for text          device, stream, event or copy.
-- @columns start_ns, end_ns
-- @column stack text              Functions that called it, outermost first; NULL if not recorded.
CREATE VIEW blocking_calls AS
SELECT run_id, rank, run_group, name, api, waits_for, start_ns, start_ns + dur_ns AS end_ns, stack
FROM cuda_calls JOIN api_roles USING (name)
WHERE api <> 'sync' AND waits_for IS NOT NULL;

-- @view work_origins  a row is a kernel, memcpy or memset with the place on the CPU that launched it.
-- That is the operator or range with its External id; of the replay of a CUDA graph the launch call in its capture;
-- without any (graphs whose capture is not known, work outside operators) its launch call.
-- Times are those of launching_ops.
-- @column * of gpu_work
-- @column short_name text         Short name of a kernel; for copies and fills, name.
-- @column launching_ns ns         Start of the launch call; NULL if it is not known.
-- @column from_tid id             Thread.
-- @column from_ns ns              Start of the operator or range, else of the launch call; NULL if neither is known.
-- @column from_end_ns ns          End of the operator or range, else the start of the launch call.
CREATE VIEW work_origins AS
SELECT
    w.*, coalesce(n.short_name, w.name) AS short_name, coalesce(w.call_start_ns, t.twin_ns) AS launching_ns,
    CASE WHEN op_id > 0 THEN op_tid ELSE coalesce(capture_tid, call_tid) END AS from_tid,
    CASE WHEN op_id > 0 THEN op_start_ns ELSE coalesce(capture_start_ns, launching_ns) END AS from_ns,
    CASE WHEN op_id > 0 THEN op_start_ns + op_dur_ns ELSE from_ns END AS from_end_ns
FROM gpu_work w
LEFT JOIN kernel_names n ON w.kind = 'kernel' AND n.run_id = w.run_id AND n.name = w.name
LEFT JOIN twin_launches t ON t.run_id = w.run_id AND t.rank = w.rank AND t.correlation_id = w.correlation_id;

-- @table name_codes  a row is a name of GPU work, an operator or a range: a number is faster to sort and compare.
-- @column name text               Name; short name of a kernel.
-- @column code index              Its number.
CREATE TABLE name_codes AS
SELECT name, row_number() OVER (ORDER BY name)::INTEGER AS code
FROM (
    SELECT coalesce(short_name, name) AS name FROM kernel_names
    UNION
    SELECT name FROM gpu_work WHERE kind <> 'kernel'
    UNION
    SELECT outer_name FROM gpu_work
    UNION
    SELECT name FROM op_sums WHERE kind IN ('op', 'range')
    UNION
    SELECT name FROM full_cpu_ops
    UNION
    SELECT name FROM full_ranges
);

-- @view queued_launches  a row is a launch call on a stream: queued from the start of the call to the start of its
--   first work there (kernel, memcpy or memset).
-- @columns run_group, run_id, rank, device, stream, correlation_id
-- @column start_ns ns             Start of the call.
-- @column end_ns ns               Start of the work, at least that of the call.
CREATE VIEW queued_launches AS
SELECT
    run_group, run_id, rank, device, stream, correlation_id, call_start_ns AS start_ns,
    greatest(start_ns, call_start_ns) AS end_ns
FROM gpu_work
WHERE first_on_stream;
