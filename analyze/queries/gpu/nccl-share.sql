-- What share of the time goes to NCCL, by collective?
--
-- Communication kernels by the collective in their name. kernel_time_pct and gpu_time_pct as in kernel-share;
-- comm_time_pct adds up to 100 over the rows.
-- @use arithmetic, time_sums
-- @column collective text         broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all, send_recv,
--                                 other.
-- @column calls count             Launches that ran.
-- @column total_ns ns             Sum of durations.
-- @column kernel_time_pct %       Share of the time of all kernels.
-- @column gpu_time_pct %          Share of GPU time: kernels, memcpys and memsets.
-- @column comm_time_pct %         Share of the time of communication kernels.
-- @order total_ns DESC, collective
WITH grouped AS (
    SELECT
        run_group, coalesce(kernel_names.collective, 'other') AS collective,
        sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns
    FROM kernel_sums JOIN kernel_names USING (run_id, name)
    WHERE family = 'communication'
    GROUP BY ALL
)
SELECT
    g.run_group, collective, calls, total_ns,
    pct(total_ns, kernel_ns) AS kernel_time_pct,
    pct(total_ns, gpu_ns) AS gpu_time_pct,
    pct(total_ns, sum(total_ns) OVER (PARTITION BY g.run_group)) AS comm_time_pct
FROM grouped g JOIN gpu_time_sums t ON g.run_group IS NOT DISTINCT FROM t.run_group
