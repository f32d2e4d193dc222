-- Which CUDA calls make the CPU wait for the GPU?
--
-- Calls that block the CPU thread until GPU work is done: device, stream and event synchronizations, and synchronous
-- copies (cudaMemcpy and the like; also those of HIP and XPU). schemas/api_roles.toml lists the functions. `flagged`:
-- `nsys analyze -r cuda_api_sync` reports the call, a device or stream synchronization by the runtime; that rule
-- recommends event synchronization instead. `memcpy-sync` has the asynchronous copies that block.
-- @column name text               Runtime or driver function.
-- @column waits_for text          device, stream, event or copy.
-- @column calls count             Calls.
-- @column total_ns ns             Sum of durations.
-- @column avg_ns ns               Mean.
-- @column max_ns ns               Longest.
-- @column api_time_pct %          Share of the time in all CUDA calls.
-- @column flagged bool            Whether the rule of Nsight Systems reports it.
-- @column called_by text          Functions that made the longest of these calls, outermost first; NULL without
--                                 backtraces (nsys profile --cudabacktrace=sync).
-- @main name, waits_for, calls, total_ns, avg_ns, api_time_pct, flagged
-- @order total_ns DESC, name
-- @use arithmetic, launches
-- @needs CUDA calls that synchronise
-- @full CUDA calls
-- @plot bars y=name x=total_ns label=api_time_pct per=step,rank
WITH totals AS (
    SELECT run_group, sum(dur_ns) AS api_ns FROM cuda_calls WHERE api <> 'sync' GROUP BY run_group
)
SELECT
    c.run_group, name, waits_for, count(*) AS calls, sum(end_ns - start_ns)::BIGINT AS total_ns,
    avg(end_ns - start_ns) AS avg_ns, max(end_ns - start_ns) AS max_ns,
    pct(sum(end_ns - start_ns), any_value(api_ns)) AS api_time_pct,
    any_value(api) = 'runtime' AND waits_for IN ('device', 'stream') AS flagged,
    arg_max(stack, end_ns - start_ns) AS called_by
FROM blocking_calls c JOIN totals t ON t.run_group IS NOT DISTINCT FROM c.run_group
GROUP BY c.run_group, name, waits_for
