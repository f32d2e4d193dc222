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
-- @use arithmetic, compiled_regions, inductor
-- @needs compiled code (torch.compile)
-- @full operators
WITH parts AS (
    SELECT run_group, run_id, rank, region, pass, kind, name, dur_ns AS gpu_ns, 0 AS cpu_ns, 0 AS calls
    FROM compiled_work
    UNION ALL
    SELECT run_group, run_id, rank, region, pass, NULL, NULL, 0, dur_ns, 1
    FROM compiled_regions
    WHERE '{group}' = 'region'
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
