-- How much of the time in collectives is transfer, and how much is waiting for ranks that have not arrived?
--
-- A communication kernel waits until the last rank of its call has started, at most until its own end; the rest is
-- transfer. If the call is not known, neither is the wait: the recording does not name the group, ranks of it are
-- missing, the kernels never ran at the same time, or the peer of a send or receive is not known. Waiting that is an
-- artifact of the recording is excluded, as in `stragglers`: before all ranks had begun to record, and in a cold first
-- call. Transfer, waiting, excluded and unknown time add up to the durations of all communication kernels. Calls are
-- matched as in `collectives`.
-- @param group collective|rank|dimension|process_group = collective   What a row is.
-- @column run_id id               The run.
-- @column {group} text            Collective, process rank, dimension of the process group (empty if not known) or
--                                 process group.
-- @column kernels count           Kernels: one per call, rank and device.
-- @column transfer_ns ns          Time after the last rank has started.
-- @column waiting_ns ns           Time before that.
-- @column excluded_ns ns          The part of it that is an artifact of the recording; not in waiting_ns.
-- @column unknown_ns ns           Time of the kernels whose call is not known.
-- @column waiting_pct %           Waiting / (transfer + waiting).
-- @order run_id, transfer_ns + waiting_ns + unknown_ns DESC, {group}
-- @use arithmetic, collectives
-- @needs kernels of NCCL collectives
-- @pass gpu
-- @disturbed waits
-- @plot bars y={group} x=transfer_ns,waiting_ns,unknown_ns per=step,gpu
-- @drill collective collectives each=yes collective={collective}
-- @drill rank stragglers rank={rank}
SELECT
    run_group, run_id, {group}::VARCHAR AS {group}, count(*) AS kernels,
    coalesce(sum(dur_ns - wait_ns - excluded_ns), 0)::BIGINT AS transfer_ns,
    coalesce(sum(wait_ns), 0)::BIGINT AS waiting_ns, coalesce(sum(excluded_ns), 0)::BIGINT AS excluded_ns,
    coalesce(sum(dur_ns) FILTER (wait_ns IS NULL), 0)::BIGINT AS unknown_ns,
    pct(coalesce(sum(wait_ns), 0), coalesce(sum(dur_ns - excluded_ns) FILTER (wait_ns IS NOT NULL), 0))
        AS waiting_pct
FROM matched_collectives('collective_kernels')
GROUP BY run_group, run_id, {group}
