-- Which kernels take the time?
--
-- Durations are summed over all ranks and devices: concurrent kernels count twice, as in key_averages() and `nsys
-- stats`. kernel_time_pct is the share of the time of all kernels; gpu_time_pct is the share of the time of kernels,
-- memcpys and memsets (nvprof's Time(%)).
-- By op, module and line, kernels of the backward pass count where their forward operator ran: its outermost operator,
-- its innermost nn.Module, the innermost function of the program. Modules and lines need Python stacks. The module of a
-- kernel of a CUDA graph without a recorded capture is its annotation (torch's mark_kernels), if it has one.
-- @param group name|short_name|family|algorithm|op|module|line|device|stream = name   What a row is.
-- @column {group} text            Kernel name; what the name says (schemas/kernel_rules.toml); what launched the
--                                 kernel; or where it ran.
-- @column calls count             Launches that ran.
-- @column total_ns ns             Sum of durations.
-- @column avg_ns ns               Mean duration.
-- @column min_ns ns               Shortest.
-- @column max_ns ns               Longest.
-- @column kernel_time_pct %       Share of kernel time.
-- @column gpu_time_pct %          Share of GPU time: kernels, memcpys and memsets.
-- @main {group}, calls, total_ns, avg_ns, kernel_time_pct
-- @order total_ns DESC, {group}
-- @use arithmetic, time_sums, work_places
-- @by device, stream
-- @needs kernels, or sums of kernels (nvprof)
-- @pass gpu
-- @plot bars y={group} x=total_ns color=family label=kernel_time_pct top=15 per=step,gpu
-- @drill name kernel-by-phase name={name}
-- @drill short_name kernel-by-phase group=short_name short_name={short_name}
-- @drill family kernel-durations family={family}
WITH grouped AS (
    SELECT
        run_group, {group}, sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns, min(min_ns) AS min_ns,
        max(max_ns) AS max_ns
    FROM kernels_by_{group}
    GROUP BY run_group, {group}
)
SELECT
    g.run_group, {group}, calls, total_ns, total_ns::DOUBLE / calls AS avg_ns, min_ns, max_ns,
    pct(total_ns, kernel_ns) AS kernel_time_pct,
    pct(total_ns, gpu_ns) AS gpu_time_pct
FROM grouped g JOIN gpu_time_sums t ON g.run_group IS NOT DISTINCT FROM t.run_group
