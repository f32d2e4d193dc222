-- Which module, source line and operator of the forward pass GPU work belongs to: work of the backward pass to those of
-- the operator whose gradient it computes (gpu_work). Modules and lines need Python stacks.
-- @use intervals, launches, program_lines

-- @view forward_work  a row is a kernel, memcpy or memset with the place of the forward pass that it belongs to.
-- @column * of work_origins
-- @column backward bool           Whether it is work of the backward pass whose forward operator is known.
-- @column place_tid id            Thread of the forward operator; of other work, from_tid.
-- @column place_ns ns             Start of the forward operator; of other work, from_ns.
CREATE VIEW forward_work AS
SELECT
    *, forward_start_ns IS NOT NULL AS backward, coalesce(forward_tid, from_tid) AS place_tid,
    coalesce(forward_start_ns, from_ns) AS place_ns
FROM work_origins;

-- @table python_threads  a row is a thread that runs Python functions: a number is faster to join than run, rank and
--   thread.
-- @columns track, run_id, rank, tid
CREATE TABLE python_threads AS
SELECT row_number() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track, *
FROM (SELECT DISTINCT run_id, rank, tid FROM launching_ranges WHERE origin = 'python_function');

-- @view kernel_places  a row is a kernel with its thread (NULL if it runs no Python functions) and place of the
--   forward pass, as a point in time.
-- @columns track, run_group, dur_ns
-- @column at_ns ns                Its place.
-- @column annotation text         What the program calls it, if it is of a CUDA graph whose capture is not known.
CREATE VIEW kernel_places AS
SELECT
    t.track, f.run_group, f.dur_ns, f.place_ns AS at_ns, CASE WHEN f.graph IS NULL THEN f.annotation END AS annotation
FROM forward_work f
LEFT JOIN python_threads t ON t.run_id = f.run_id AND t.rank = f.rank AND t.tid IS NOT DISTINCT FROM f.place_tid
WHERE f.kind = 'kernel';

-- @view module_calls  a row is a call of an nn.Module.
-- @columns track
-- @column name text               Module.
-- @columns start_ns, end_ns
CREATE VIEW module_calls AS
SELECT t.track, substr(r.name, 12) AS name, r.start_ns, r.start_ns + r.dur_ns AS end_ns
FROM launching_ranges r
JOIN python_threads t ON t.run_id = r.run_id AND t.rank = r.rank AND t.tid IS NOT DISTINCT FROM r.tid
WHERE r.origin = 'python_function' AND starts_with(r.name, 'nn.Module: ');

-- @view line_calls  a row is a call of a function of the program.
-- @columns track
-- @column name text               Its line (program_lines).
-- @columns start_ns, end_ns
CREATE VIEW line_calls AS
SELECT t.track, p.line AS name, r.start_ns, r.start_ns + r.dur_ns AS end_ns
FROM launching_ranges r
JOIN program_lines p USING (name)
JOIN python_threads t ON t.run_id = r.run_id AND t.rank = r.rank AND t.tid IS NOT DISTINCT FROM r.tid
WHERE r.origin = 'python_function';

-- @view kernels_by_op  a row is a kernel with the outermost operator of the forward pass that it belongs to.
-- @columns run_group
-- @column op text                 Operator.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_op AS
SELECT
    run_group, coalesce(forward_op, '(no operator)') AS op, 1 AS calls,
    dur_ns AS total_ns, dur_ns AS min_ns, dur_ns AS max_ns
FROM gpu_work
WHERE kind = 'kernel';

-- @view kernels_by_module  a row is a kernel with the innermost module that it belongs to.
-- @columns run_group
-- @column module text             Module, or annotation.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_module AS
WITH _innermost AS (
    FROM intervals_innermost('module_calls')
)
SELECT
    run_group, coalesce(annotation, inside.name, '(no module)') AS module, 1 AS calls,
    dur_ns AS total_ns, dur_ns AS min_ns, dur_ns AS max_ns
FROM points_in_intervals('kernel_places', '_innermost');

-- @view kernels_by_line  a row is a kernel with the source line that it belongs to.
-- @columns run_group
-- @column line text               Line of the innermost function of the program: train.py:42 in train_step.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_line AS
WITH _innermost AS (
    FROM intervals_innermost('line_calls')
)
SELECT
    run_group, coalesce(inside.name, '(no line)') AS line, 1 AS calls,
    dur_ns AS total_ns, dur_ns AS min_ns, dur_ns AS max_ns
FROM points_in_intervals('kernel_places', '_innermost');

-- @view kernels_by_device  a row is a kernel with its GPU.
-- @columns run_group
-- @column device text             Rank and GPU.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_device AS
SELECT
    run_group, format('rank {} GPU {}', rank, coalesce(device::VARCHAR, '?')) AS device, 1 AS calls,
    dur_ns AS total_ns, dur_ns AS min_ns, dur_ns AS max_ns
FROM kernels;

-- @view kernels_by_stream  a row is a kernel with its stream.
-- @columns run_group
-- @column stream text             Rank, GPU and CUDA stream.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_stream AS
SELECT
    run_group,
    format('rank {} GPU {} stream {}', rank, coalesce(device::VARCHAR, '?'), coalesce(stream::VARCHAR, '?')) AS stream,
    1 AS calls, dur_ns AS total_ns, dur_ns AS min_ns, dur_ns AS max_ns
FROM kernels;
