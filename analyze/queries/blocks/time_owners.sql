-- @use blocking_calls, collective_calls, gpu_gaps, gpu_tracks, intervals, phases, profiler_overhead, run_gpus
-- What the time of a GPU belongs to, for findings that name a cause: intervals on its track. A finding takes what no
-- cause above it in these lists has taken, so that no two name the same time:
--   idle           the profiler, waits for data, blocking calls, DataParallel, then the host in general;
--   communication  waits for a straggler, DataParallel's broadcasts, then communication in general;
--   copies         small ones, those of pageable memory, then copies in general.

CREATE VIEW tracked_kernels AS
SELECT t.track, k.run_id, k.rank, k.device, k.name, k.start_ns, k.start_ns + k.dur_ns AS end_ns
FROM kernels k JOIN gpu_tracks t ON t.run_id = k.run_id AND t.rank = k.rank AND t.device IS NOT DISTINCT FROM k.device;
CREATE VIEW kernel_times AS SELECT track, start_ns, end_ns FROM gpu_intervals WHERE kind = 'kernel';
CREATE VIEW compute_times AS SELECT track, start_ns, end_ns FROM gpu_intervals WHERE class = 'compute';

-- Idle time. What runs on the CPU stands on each track of its process.
CREATE VIEW profiler_times AS
SELECT t.track, o.start_ns, o.end_ns FROM profiler_overhead o JOIN gpu_tracks t USING (run_id, rank);

CREATE VIEW data_times AS
SELECT t.track, p.start_ns, p.start_ns + p.dur_ns AS end_ns
FROM phase_ranges p JOIN gpu_tracks t USING (run_id, rank)
WHERE p.phase = 'data';

CREATE VIEW blocking_times AS
SELECT t.track, c.start_ns, c.end_ns FROM blocking_calls c JOIN gpu_tracks t USING (run_id, rank);

-- The broadcasts of processes that broadcast to several GPUs of their own: DataParallel replicates its module so.
CREATE VIEW dataparallel_broadcasts AS
SELECT k.*
FROM tracked_kernels k JOIN kernel_names n USING (run_id, name)
WHERE n.collective = 'broadcast'
WINDOW processes AS (PARTITION BY k.run_id, k.rank)
QUALIFY max(k.device) OVER processes > min(k.device) OVER processes;

-- DataParallel's own work on the host: its forward pass (replicate, scatter, the replicas in threads of one
-- interpreter, gather), which is the collector's `forward` where torch's own range is missing, and the backward of
-- replicate, scatter and gather.
CREATE VIEW dataparallel_times AS
WITH named AS (
    SELECT r.run_id, r.rank, r.start_ns, r.start_ns + r.dur_ns AS end_ns
    FROM ranges r JOIN (SELECT run_id, parallelism FROM runs) u USING (run_id)
    WHERE r.origin IN ('record_function', 'nvtx')
        AND (r.name = 'DataParallel.forward' OR r.name = 'forward' AND u.parallelism = 'dp')
    UNION ALL
    SELECT run_id, rank, start_ns, start_ns + dur_ns
    FROM cpu_ops
    WHERE name IN ('Scatter', 'Broadcast', 'Gather', 'ScatterBackward', 'BroadcastBackward', 'GatherBackward')
)
SELECT t.track, n.start_ns, n.end_ns
FROM named n JOIN gpu_tracks t USING (run_id, rank)
WHERE (run_id, rank) IN (SELECT (run_id, rank) FROM dataparallel_broadcasts);

-- Gaps per device: whether the host had queued nothing (host_wait), and whether they begin in a blocking call.
CREATE VIEW idle_gaps AS
SELECT
    g.track, g.start_ns, g.end_ns, idle_cause(g.start_ns, g.end_ns, g.launch_ns, 30000) = 'host_wait' AS host,
    coalesce(g.start_ns <= b.end_ns, false) AS blocked
FROM gpu_gaps('gaps_per_device') g
ASOF LEFT JOIN intervals_union('blocking_times') b ON g.track = b.track AND g.start_ns >= b.start_ns;

-- Communication. Calls of several ranks, from the start of the rank's kernel to the start of the last.
CREATE VIEW straggler_waits AS
SELECT
    t.track, c.run_id, c.rank, c.call, c.start_ns = c.last_start_ns AS last, c.start_ns,
    c.start_ns + c.wait_ns AS end_ns
FROM judged_calls('collective_kernels') c
JOIN gpu_tracks t ON t.run_id = c.run_id AND t.rank = c.rank AND t.device IS NOT DISTINCT FROM c.device
WHERE c.status = 'matched' AND c.ranks > 1 AND NOT c.one_process;

-- How a finding says which waits are not known, per run that has any.
CREATE VIEW unknown_waits AS
WITH counts AS (
    SELECT
        run_id, count(*) FILTER (status = 'point_to_point') AS pairs,
        count(*) FILTER (status IN ('incomplete', 'unmatched')) AS others
    FROM judged_calls('collective_kernels')
    GROUP BY run_id
)
SELECT
    run_id, '; waits in ' || concat_ws(
        ' and ', CASE WHEN pairs > 0 THEN counted(pairs, 'point-to-point kernel', 'point-to-point kernels') END,
        CASE WHEN others > 0 THEN counted(others, 'kernel', 'kernels') || ' of unmatched calls' END
    ) || ' are not known' AS note
FROM counts
WHERE pairs + others > 0;

-- Copies.
CREATE VIEW tracked_memcpys AS
SELECT
    t.track, m.run_id, m.start_ns, m.start_ns + m.dur_ns AS end_ns, m.bytes,
    coalesce(m.kind IN ('HtoD', 'DtoH') AND m.bytes < 65536, false) AS small,
    coalesce('Pageable' IN (m.src_memory, m.dst_memory), false) AS pageable
FROM memcpys m
JOIN gpu_tracks t ON t.run_id = m.run_id AND t.rank = m.rank AND t.device IS NOT DISTINCT FROM m.device;
