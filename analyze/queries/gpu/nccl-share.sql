-- What share of the time goes to NCCL, by collective?
--
-- Communication kernels by collective: as the profiler recorded it (an all_to_all runs as NCCL's SendRecv kernel), else
-- by the range of NCCL's process group around the launch (nccl:all_to_all), else by the kernel name. kernel_time_pct
-- and gpu_time_pct as in `kernel-share`; comm_time_pct adds up to 100.
-- @param per none|dimension|group|scope = none   Split the rows, besides by collective: by dimension of the parallelism
--                                 (as in `collectives`), process group, or scope (within a host or between hosts). --by
--                                 accepts these, too.
-- @column dimension text          With per=dimension or group: dp, fsdp, tp, pp, ep or cp; empty if not known.
-- @column scope text              With per=group or scope: intra (all ranks of the group are on one host) or inter (on
--                                 several); empty if the hosts are not known.
-- @column process_group text      With per=group: the program's name for the group, else its own name, and its ranks.
-- @column collective text         broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all, send_recv,
--                                 other.
-- @column calls count             Launches that ran.
-- @column total_ns ns             Sum of durations.
-- @column kernel_time_pct %       Share of the time of all kernels.
-- @column gpu_time_pct %          Share of GPU time: kernels, memcpys and memsets.
-- @column comm_time_pct %         Share of the time of communication kernels.
-- @main dimension, scope, process_group, collective, calls, total_ns, kernel_time_pct, gpu_time_pct, comm_time_pct
-- @order total_ns DESC, collective
-- @use arithmetic, collective_kinds, collectives, comm_groups, time_sums
-- @by device, stream
-- @needs communication kernels, or sums of communication kernels (nvprof)
-- @pass gpu
-- @plot bars y=dimension,scope,process_group,collective x=total_ns label=comm_time_pct per=step,gpu
-- @drill collective collectives each=yes collective={collective}
WITH by_name AS (
    SELECT
        k.run_group, k.run_id, k.rank, k.name, coalesce(k.collective, l.collective) AS written,
        coalesce(k.group_name, b.group_name) AS group_name, coalesce(k.group_ranks, b.group_ranks) AS group_ranks,
        count(*) AS calls, sum(dur_ns) AS total_ns
    FROM comm_kernels k
    LEFT JOIN batched_kernels b
        ON b.run_id = k.run_id AND b.rank = k.rank AND b.correlation_id = k.correlation_id AND k.collective IS NULL
    LEFT JOIN launched_collectives l
        ON l.run_id = k.run_id AND l.rank = k.rank AND l.correlation_id = k.correlation_id
    GROUP BY ALL
    UNION ALL
    SELECT run_group, run_id, rank, name, NULL, NULL, NULL, calls, total_ns
    FROM printed_kernel_sums
),
grouped AS (
    SELECT
        run_group, kernel_collective(written, n.collective) AS collective,
        CASE WHEN '{per}' IN ('dimension', 'group') THEN g.dimension END AS dimension,
        CASE WHEN '{per}' IN ('scope', 'group') THEN g.scope END AS scope,
        CASE WHEN '{per}' = 'group' THEN g.process_group END AS process_group,
        sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns
    FROM by_name b
    JOIN kernel_names n ON n.run_id = b.run_id AND n.name = b.name
    LEFT JOIN comm_groups g
        ON g.run_id = b.run_id AND g.rank = b.rank AND g.group_name IS NOT DISTINCT FROM b.group_name
        AND g.group_ranks IS NOT DISTINCT FROM b.group_ranks
    WHERE n.family = 'communication'
    GROUP BY ALL
)
SELECT
    g.run_group, dimension, scope, process_group, collective, calls, total_ns,
    pct(total_ns, kernel_ns) AS kernel_time_pct,
    pct(total_ns, gpu_ns) AS gpu_time_pct,
    pct(total_ns, sum(total_ns) OVER (PARTITION BY g.run_group)) AS comm_time_pct
FROM grouped g JOIN gpu_time_sums t ON g.run_group IS NOT DISTINCT FROM t.run_group
