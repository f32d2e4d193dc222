-- How much communication is exposed, in which group, and is it transfer or waiting?
--
-- Time of a GPU with communication and without compute, as in `breakdown`. Each nanosecond counts once: of several
-- concurrent kernels, for one that transfers before one that waits, then for the one that began last. A kernel waits
-- until the last rank of its call has started; if the call is not known, its time is unknown. The three parts add up to
-- the exposed time, and the exposed times of a GPU (or step) to exposed_comm_ns of `breakdown`.
-- @param per dimension|group|collective|scope = dimension   What a row is: a dimension of the parallelism (as in
--                                 `collectives`), a process group, a collective of a process group, or a scope (within
--                                 a host or between hosts).
-- @param window span|step = span  The whole recording, or each training step (as in breakdown).
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column step index              Training step; empty for the whole span.
-- @column dimension text          dp, fsdp, tp, pp, ep or cp of the process group; empty if not known.
-- @column inferred bool           Whether the dimension is inferred from the collectives and ranks of the group.
-- @column scope text              intra (within a host) or inter (between hosts); empty if the hosts are not known.
-- @column process_group text      With per=group or collective: the program's name for the group, and its ranks.
-- @column collective text         With per=collective: all_reduce, send_recv ...
-- @column comm_ns ns              Union of its kernels; kernels of several rows may run at the same time.
-- @column exposed_ns ns           Its time without concurrent compute.
-- @column transfer_ns ns          Part of exposed_ns: transfer.
-- @column waiting_ns ns           Part of exposed_ns: waiting for ranks that have not arrived.
-- @column unknown_ns ns           Part of exposed_ns: kernels whose call is not known.
-- @column exposed_pct %           Share of the window.
-- @main run_id, rank, device, step, dimension, scope, process_group, collective, exposed_ns, transfer_ns, waiting_ns,
--     exposed_pct
-- @order run_id, rank, device, step, exposed_ns DESC
-- @use arithmetic, exposed_comm, gpu_timeline, intervals
-- @needs communication kernels; with window=step also training steps (ProfilerStep# or NVTX ranges named step)
-- @pass gpu
-- @disturbed waits
-- @plot bars y=run_id,rank,device,step,dimension,scope,process_group,collective
--     x=transfer_ns,waiting_ns,unknown_ns top=64 per=step
WITH kinds AS (
    SELECT
        *, {
            'dimension': CASE WHEN '{per}' <> 'scope' THEN dimension END,
            'inferred': CASE WHEN '{per}' <> 'scope' THEN inferred END, 'scope': scope,
            'process_group': CASE WHEN '{per}' IN ('group', 'collective') THEN process_group END,
            'collective': CASE WHEN '{per}' = 'collective' THEN collective END
        } AS kind
    FROM comm_parts
),
parts AS (
    SELECT track, start_ns, end_ns, kind FROM kinds
),
pieces AS (
    SELECT {'window': window_id, 'kind': kind} AS track, start_ns, end_ns
    FROM intervals_clip('parts', 'gpu_windows_{window}')
),
lengths AS (
    SELECT track.window AS window_id, track.kind AS kind, covered_ns FROM intervals_coverage('pieces')
),
owned AS (
    SELECT
        track, start_ns, end_ns, owner.part AS part, {
            'dimension': CASE WHEN '{per}' <> 'scope' THEN owner.dimension END,
            'inferred': CASE WHEN '{per}' <> 'scope' THEN owner.inferred END, 'scope': owner.scope,
            'process_group': CASE WHEN '{per}' IN ('group', 'collective') THEN owner.process_group END,
            'collective': CASE WHEN '{per}' = 'collective' THEN owner.collective END
        } AS kind
    FROM exposed_comm
),
exposed AS (
    SELECT
        window_id, kind, sum(end_ns - start_ns)::BIGINT AS exposed_ns,
        coalesce(sum(end_ns - start_ns) FILTER (part = 'transfer'), 0)::BIGINT AS transfer_ns,
        coalesce(sum(end_ns - start_ns) FILTER (part = 'waiting'), 0)::BIGINT AS waiting_ns,
        coalesce(sum(end_ns - start_ns) FILTER (part = 'unknown'), 0)::BIGINT AS unknown_ns
    FROM intervals_clip('owned', 'gpu_windows_{window}')
    GROUP BY window_id, kind
)
SELECT
    run_group, run_id, rank, device, step, l.kind.dimension AS dimension, l.kind.inferred AS inferred,
    l.kind.scope AS scope, l.kind.process_group AS process_group, l.kind.collective AS collective,
    covered_ns AS comm_ns,
    coalesce(exposed_ns, 0) AS exposed_ns, coalesce(transfer_ns, 0) AS transfer_ns,
    coalesce(waiting_ns, 0) AS waiting_ns, coalesce(unknown_ns, 0) AS unknown_ns,
    pct(coalesce(exposed_ns, 0), w.end_ns - w.start_ns - coalesce(cold_ns, 0)) AS exposed_pct
FROM lengths l
JOIN gpu_windows_{window} w USING (window_id)
LEFT JOIN gpu_cold_{window} USING (window_id)
JOIN gpu_tracks USING (track)
LEFT JOIN exposed e ON e.window_id = l.window_id AND e.kind IS NOT DISTINCT FROM l.kind
