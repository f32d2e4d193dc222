-- How much of the communication overlaps compute?
--
-- The share of the time with communication kernels on a GPU in which compute kernels run, too. The rest is exposed
-- communication (`breakdown`). Copies count on neither side.
-- @param per none|dimension|group|scope = none   Split the rows: by dimension of the parallelism (as in `collectives`),
--                                 process group, or scope. Kernels of different rows may run concurrently. --by accepts
--                                 these, too.
-- @param window span|step = span  What a row is: the whole recording, or a training step (as in breakdown).
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column step index              Training step; empty for the whole span.
-- @column dimension text          With per=dimension or group: dp, fsdp, tp, pp, ep or cp; empty if not known.
-- @column scope text              With per=scope: intra (within a host) or inter (between hosts); empty if the hosts
--                                 are not known.
-- @column process_group text      With per=group: the program's name for the group, else its own name, and its ranks.
-- @column comm_ns ns              Union of communication kernels.
-- @column overlapped_ns ns        Part of comm_ns with concurrent compute kernels.
-- @column overlap_pct %           Share of comm_ns; empty without communication.
-- @main run_id, rank, device, step, dimension, scope, process_group, comm_ns, overlapped_ns, overlap_pct
-- @order run_id, rank, device, step, dimension, scope, process_group
-- @use arithmetic, exposed_comm, gpu_timeline, intervals
-- @by device
-- @needs work on GPUs; with window=step also training steps (ProfilerStep# or NVTX ranges named step)
-- @pass gpu
-- @plot bars y=run_id,rank,device,step,dimension,scope,process_group x=overlap_pct
WITH kinds AS (
    SELECT
        track, start_ns, end_ns, {
            'dimension': CASE WHEN '{per}' IN ('dimension', 'group') THEN dimension END,
            'scope': CASE WHEN '{per}' = 'scope' THEN scope END,
            'process_group': CASE WHEN '{per}' = 'group' THEN process_group END
        } AS kind
    FROM comm_parts
    WHERE '{per}' <> 'none'
),
pieces AS (
    SELECT {'window': window_id, 'kind': kind} AS track, start_ns, end_ns
    FROM intervals_clip('kinds', 'gpu_windows_{window}')
),
comm AS (
    SELECT track, covered_ns AS comm_ns FROM intervals_coverage('pieces')
),
compute AS (
    SELECT c.track, s.start_ns, s.end_ns
    FROM gpu_segments_{window} s JOIN comm c ON c.track.window = s.window_id
    WHERE s.comm_kernels > 0 AND s.compute_kernels > 0
),
overlapped AS (
    SELECT track, sum(end_ns - start_ns)::BIGINT AS overlapped_ns
    FROM intervals_intersect('pieces', 'compute')
    GROUP BY track
),
lengths AS (
    SELECT track.window AS window_id, unnest(track.kind), comm_ns, coalesce(overlapped_ns, 0) AS overlapped_ns
    FROM comm LEFT JOIN overlapped USING (track)
    UNION ALL
    SELECT window_id, NULL, NULL, NULL, comm_ns, comm_ns + compute_ns - kernel_ns
    FROM gpu_lengths_{window}
    WHERE '{per}' = 'none'
)
SELECT
    run_group, run_id, rank, device, step, dimension, scope, process_group, coalesce(comm_ns, 0) AS comm_ns,
    coalesce(overlapped_ns, 0) AS overlapped_ns, pct(overlapped_ns, comm_ns) AS overlap_pct
FROM gpu_windows_{window} w
JOIN gpu_tracks USING (track)
LEFT JOIN lengths USING (window_id)
