-- How much of the time in collectives is transfer, and how much is waiting for ranks that have not arrived?
--
-- A communication kernel waits until the last rank of its call has started, and at most until it ends itself; the rest
-- is transfer. Where the call is not known (the recording does not name the group, ranks of it are missing, kernels
-- have no moment in common, sends and receives whose peer is not known), neither is its waiting. The three add up to
-- the durations of all communication kernels. Calls as in `collectives`.
-- @param group collective|rank|dimension|process_group = collective   What a row is.
-- @column run_id id               The run.
-- @column {group} text            Collective, process rank, dimension of the process group (empty if not known) or
--                                 process group.
-- @column kernels count           Kernels: one a call, rank and device.
-- @column transfer_ns ns          Their time after the last rank has come.
-- @column waiting_ns ns           Their time before.
-- @column unknown_ns ns           Time of the kernels whose call is not known.
-- @column waiting_pct %           Waiting in transfer and waiting.
-- @order run_id, transfer_ns + waiting_ns + unknown_ns DESC, {group}
-- @use arithmetic, collective_calls
-- @needs kernels of NCCL collectives
-- @plot bars y={group} x=transfer_ns,waiting_ns,unknown_ns
-- @drill collective collectives each=yes collective={collective}
-- @drill rank stragglers rank={rank}
SELECT
    run_group, run_id, {group}::VARCHAR AS {group}, count(*) AS kernels,
    coalesce(sum(dur_ns - wait_ns), 0)::BIGINT AS transfer_ns, coalesce(sum(wait_ns), 0)::BIGINT AS waiting_ns,
    coalesce(sum(dur_ns) FILTER (wait_ns IS NULL), 0)::BIGINT AS unknown_ns,
    pct(coalesce(sum(wait_ns), 0), coalesce(sum(dur_ns) FILTER (wait_ns IS NOT NULL), 0)) AS waiting_pct
FROM judged_calls('collective_kernels')
GROUP BY run_group, run_id, {group}
