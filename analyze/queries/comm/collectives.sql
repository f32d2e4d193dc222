-- How much do the collectives move, and how fast?
--
-- A call is one collective over all its ranks. Its bytes are the larger of input and output of a rank (elements x
-- element size). Its duration is the shortest over the ranks, since the others also wait for the last one. Algorithm
-- bandwidth is bytes / duration; bus bandwidth is that x 2(n-1)/n for all_reduce, (n-1)/n for all_gather,
-- reduce_scatter and all_to_all, and 1 for the others, as in nccl-tests. Calls are matched across ranks by process
-- group and sequence number, or by order if no number was recorded. Without the profiler's metadata (DataParallel,
-- Nsight Systems) bytes and bandwidths are empty, and all ranks are one group if their kernels end together in every
-- call. Only matched calls have durations and bandwidths; calls with missing ranks, and kernels that never ran at the
-- same time, have rows of their own. A send and its receive are a call of two ranks; without a known peer, each kernel
-- is a call, in a row of its own. The dimension of a process group is the program's name for it, or inferred from its
-- collectives (docs/definitions.md).
-- @param each no|yes = no         Whether a row is one call instead of all calls of a collective.
-- @param per none|dimension|group|scope = none   Split the rows, besides by collective: by dimension of the
--                                 parallelism, process group, or scope (within a host or between hosts). --by accepts
--                                 these, too.
-- @column run_id id               The run.
-- @column dimension text          With per=dimension or group, or each=yes: dp, fsdp, tp, pp, ep or cp of the process
--                                 group; empty if not known.
-- @column inferred bool           With these: whether the dimension is inferred, not named by the program.
-- @column scope text              With per=group or scope, or each=yes: intra (within a host) or inter (between hosts);
--                                 empty if the hosts are not known.
-- @column process_group text      With per=group or each=yes: the program's name for the group, else its own name, and
--                                 its ranks.
-- @column collective text         broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all, send_recv, ...
-- @column status text             matched; incomplete (ranks of the group are missing); unmatched (the kernels never
--                                 ran at the same time: different calls, or clocks that differ); group not known (the
--                                 recording does not say which ranks are a group); point_to_point (a send or receive
--                                 without a known peer).
-- @column calls count             Calls, each counted once over its ranks.
-- @column bytes B                 Sum of the bytes of the calls; without those whose group or peer is not known.
-- @column total_ns ns             Sum of the durations of matched calls.
-- @column algbw_gb_per_s GB/s     Algorithm bandwidth over the calls whose bytes are known.
-- @column busbw_gb_per_s GB/s     Bus bandwidth over these calls.
-- @column ranks count             Ranks (or devices of a process) of a call in the trace; the maximum over the calls.
-- @column kernel_ns ns            Sum of the kernel durations over all ranks, waiting included.
-- @column group_name text         With each=yes: name of the process group, if the profiler recorded it.
-- @column start_ns ns             With each=yes: start on the rank that is first, since the first event of the run.
-- @main run_id, dimension, scope, process_group, collective, status, calls, bytes, total_ns, busbw_gb_per_s, start_ns
-- @order run_id, start_ns, total_ns DESC, collective
-- @use collective_kinds, collectives, run_zeros
-- @needs kernels of NCCL collectives
-- @pass gpu
-- @plot bars y=dimension,scope,process_group,collective x=total_ns per=step
-- @drill collective stragglers collective={collective}
WITH calls AS (
    SELECT
        run_group, run_id, call, collective, status, min(group_name) AS group_name, count(*) AS ranks,
        min(dimension) AS dimension, bool_or(inferred) AS inferred, min(process_group) AS process_group,
        min(scope) AS scope,
        CASE '{per}'
            WHEN 'dimension' THEN min(dimension) WHEN 'scope' THEN min(scope)
            WHEN 'group' THEN concat_ws(' ', min(process_group), min(scope))
        END AS part,
        CASE WHEN status NOT IN ('group not known', 'point_to_point') THEN max(bytes) END AS bytes,
        CASE WHEN status = 'matched' THEN min(dur_ns) END AS dur_ns, sum(dur_ns) AS kernel_ns,
        bus_factor(collective, count(*)) AS factor,
        arg_min(own_start_ns, start_ns) - any_value(zero_ns) AS start_ns
    FROM matched_collectives('collective_kernels') JOIN run_zeros USING (run_id)
    GROUP BY run_group, run_id, call, collective, status
)
SELECT
    run_group, run_id,
    CASE WHEN 'yes' = '{each}' OR '{per}' IN ('dimension', 'group') THEN min(dimension) END AS dimension,
    CASE WHEN 'yes' = '{each}' OR '{per}' IN ('dimension', 'group') THEN bool_or(inferred) END AS inferred,
    CASE WHEN 'yes' = '{each}' OR '{per}' IN ('scope', 'group') THEN min(scope) END AS scope,
    CASE WHEN 'yes' = '{each}' OR '{per}' = 'group' THEN min(process_group) END AS process_group,
    collective, status, count(*) AS calls, sum(bytes)::BIGINT AS bytes,
    sum(dur_ns)::BIGINT AS total_ns,
    -- Either all calls of a row have a duration or none.
    sum(bytes)::DOUBLE / nullif(sum(dur_ns) FILTER (bytes IS NOT NULL), 0) AS algbw_gb_per_s,
    sum(bytes * factor) / nullif(sum(dur_ns) FILTER (bytes IS NOT NULL), 0) AS busbw_gb_per_s,
    max(ranks) AS ranks, sum(kernel_ns)::BIGINT AS kernel_ns,
    CASE WHEN '{each}' = 'yes' THEN min(group_name) END AS group_name,
    CASE WHEN '{each}' = 'yes' THEN min(start_ns) END AS start_ns
FROM calls
GROUP BY run_group, run_id, collective, status, part, CASE WHEN '{each}' = 'yes' THEN call END
