-- What share of the time goes to NCCL, by collective?
--
-- Communication kernels by the collective that the profiler wrote beside them, as in `collectives` (all_to_all runs as
-- NCCL's SendRecv kernel), else by the one in their name. kernel_time_pct and gpu_time_pct as in kernel-share;
-- comm_time_pct adds up to 100 over the rows.
-- @column collective text         broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all, send_recv,
--                                 other.
-- @column calls count             Launches that ran.
-- @column total_ns ns             Sum of durations.
-- @column kernel_time_pct %       Share of the time of all kernels.
-- @column gpu_time_pct %          Share of GPU time: kernels, memcpys and memsets.
-- @column comm_time_pct %         Share of the time of communication kernels.
-- @main collective, calls, total_ns, kernel_time_pct, gpu_time_pct, comm_time_pct
-- @order total_ns DESC, collective
-- @use arithmetic, collective_calls, time_sums
-- @needs communication kernels
-- @plot bars y=collective x=total_ns label=comm_time_pct
-- @drill collective collectives each=yes collective={collective}
WITH by_name AS (
    SELECT run_group, run_id, name, collective AS written, count(*) AS calls, sum(dur_ns) AS total_ns
    FROM kernels
    GROUP BY run_group, run_id, name, collective
    UNION ALL
    SELECT run_group, run_id, name, NULL, calls, total_ns
    FROM kernel_sums
    WHERE (run_id, rank) NOT IN (SELECT DISTINCT (run_id, rank) FROM kernels)
),
grouped AS (
    SELECT
        run_group, kernel_collective(written, n.collective) AS collective,
        sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns
    FROM by_name JOIN kernel_names n USING (run_id, name)
    WHERE n.family = 'communication'
    GROUP BY run_group, kernel_collective(written, n.collective)
)
SELECT
    g.run_group, collective, calls, total_ns,
    pct(total_ns, kernel_ns) AS kernel_time_pct,
    pct(total_ns, gpu_ns) AS gpu_time_pct,
    pct(total_ns, sum(total_ns) OVER (PARTITION BY g.run_group)) AS comm_time_pct
FROM grouped g JOIN gpu_time_sums t ON g.run_group IS NOT DISTINCT FROM t.run_group
