-- Which lines of my program are in the kernels of torch.compile?
--
-- Triton kernels of a trace, joined to the code that Inductor wrote for their region and pass (TORCH_TRACE log): the
-- lines of the program that each computes, and the operators. A kernel of a region that the log does not have is joined
-- by name alone. Kernels of libraries in compiled code are in `compiled` (group=kernel).
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column region text             Frame / recompilation.
-- @column pass text               forward or backward.
-- @column kernel text             Kernel.
-- @column ops text                Operators that it computes, by the log, else by its name.
-- @column lines text              Lines of the program that it computes, as FILE:LINE FUNCTION; NULL if not logged.
-- @column code text               Text of these lines.
-- @column output_file text        File with the code of the graph, where it was compiled.
-- @column launches count          Launches.
-- @column gpu_ns ns               Their durations.
-- @column gpu_time_pct %          Share of all GPU work of the rank.
-- @main region, pass, kernel, lines, ops, launches, gpu_ns, gpu_time_pct
-- @order run_id, rank, gpu_ns DESC, region, pass, kernel
-- @use arithmetic, compiled_regions, inductor, program_frames
-- @needs compiled code (torch.compile) and a log of torch.compile
-- @full operators
-- @plot bars y=kernel x=gpu_ns top=15
WITH work AS (
    SELECT
        run_group, run_id, rank, region, pass, name AS kernel, count(*) AS launches, sum(dur_ns)::BIGINT AS gpu_ns,
        sum(sum(dur_ns)) OVER (PARTITION BY run_id, rank) AS all_ns
    FROM compiled_work
    GROUP BY run_group, run_id, rank, region, pass, kernel
),
kernel_lines AS (
    SELECT
        run_id, rank, kernel_number, list(DISTINCT {'at': frame_text(file, line, function), 'code': code, 'line': line})
            AS lines
    FROM compiled_lines
    GROUP BY run_id, rank, kernel_number
),
written AS (
    SELECT
        k.run_id, k.rank, k.kernel, k.compile_id AS region,
        CASE k.pass WHEN 'backward' THEN 'backward' ELSE 'forward' END AS pass, k.ops, k.output_file, l.lines
    FROM compiled_kernels k
    LEFT JOIN kernel_lines l ON l.run_id = k.run_id AND l.rank = k.rank AND l.kernel_number = k.number
),
by_name AS (
    SELECT
        run_id, rank, kernel, region, pass, string_agg(DISTINCT ops, '; ' ORDER BY ops) AS ops,
        string_agg(DISTINCT output_file, '; ' ORDER BY output_file) AS output_file,
        list_distinct(flatten(list(lines))) AS lines
    FROM written
    GROUP BY GROUPING SETS ((run_id, rank, kernel, region, pass), (run_id, rank, kernel))
)
SELECT
    w.run_group, w.run_id, w.rank, w.region, w.pass, w.kernel,
    coalesce(
        replace(coalesce(c.ops, n.ops), 'aten.', ''), nullif(array_to_string(fused_ops(w.kernel), ', '), '')
    ) AS ops,
    nullif(array_to_string(list_transform(list_sort(coalesce(c.lines, n.lines)), lambda x: x.at), ', '), '') AS lines,
    nullif(array_to_string(list_transform(list_sort(coalesce(c.lines, n.lines)), lambda x: x.code), '; '), '') AS code,
    coalesce(c.output_file, n.output_file) AS output_file, launches, gpu_ns, pct(gpu_ns, all_ns) AS gpu_time_pct
FROM work w
LEFT JOIN by_name c
    ON c.run_id = w.run_id AND c.rank = w.rank AND c.kernel = w.kernel AND c.region = w.region AND c.pass = w.pass
LEFT JOIN by_name n
    ON n.run_id = w.run_id AND n.rank = w.rank AND n.kernel = w.kernel AND n.region IS NULL AND n.pass IS NULL
WHERE starts_with(w.kernel, 'triton_') AND w.run_id IN (SELECT run_id FROM compilations)
