-- What the time of a GPU belongs to, for findings that name a cause: intervals on its track. A finding takes what no
-- cause above it in these lists has taken, so that no two name the same time:
--   idle           the profiler, waits for data, blocking calls, DataParallel, then the host in general;
--   communication  waits for a straggler in a collective, waits for what a peer sends or receives, DataParallel's
--                  broadcasts, all_gathers that a module of FSDP waits for, then communication in general;
--   copies         pages of managed memory, small ones, those of pageable memory, then copies in general.
-- @use blocking_calls, collective_calls, comm_exposed, gpu_gaps, gpu_tracks, intervals, phases, profiler_overhead,
--   run_gpus, source_times

-- @view tracked_kernels  a row is a kernel.
-- @column track index           The track that it stands on.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column name text             Name.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW tracked_kernels AS
SELECT t.track, k.run_id, k.rank, k.device, k.name, k.start_ns, k.start_ns + k.dur_ns AS end_ns
FROM kernels k JOIN gpu_tracks t ON t.run_id = k.run_id AND t.rank = k.rank AND t.device IS NOT DISTINCT FROM k.device;

-- @view kernel_times  a row is a segment of a GPU with kernels.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW kernel_times AS SELECT track, start_ns, end_ns FROM gpu_timeline WHERE kernels > 0;

-- @view profiler_times  a row is work of the profiler in the process.
-- What runs on the CPU stands on each track of its process.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW profiler_times AS
SELECT t.track, o.start_ns, o.end_ns FROM profiler_overhead o JOIN gpu_tracks t USING (run_id, rank);

-- @view data_times  a row is a wait for data of the process.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW data_times AS
SELECT t.track, p.start_ns, p.start_ns + p.dur_ns AS end_ns
FROM phase_ranges p JOIN gpu_tracks t USING (run_id, rank)
WHERE p.phase = 'data';

-- @view blocking_times  a row is a blocking call, on each track of its process.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW blocking_times AS
SELECT t.track, c.start_ns, c.end_ns FROM blocking_calls c JOIN gpu_tracks t USING (run_id, rank);

-- @view dataparallel_broadcasts  a row is a broadcast of a process that broadcasts to several GPUs of its own.
-- DataParallel replicates its module so.
-- @column track index           The track that it stands on.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column name text             Name.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW dataparallel_broadcasts AS
SELECT k.*
FROM tracked_kernels k JOIN kernel_names n USING (run_id, name)
WHERE n.collective = 'broadcast'
WINDOW processes AS (PARTITION BY k.run_id, k.rank)
QUALIFY max(k.device) OVER processes > min(k.device) OVER processes;

-- @view dataparallel_times  a row is DataParallel's own work on the host.
-- Its forward pass (replicate, scatter, the replicas in threads of one interpreter, gather), which is the collector's
-- `forward` where torch's own range is missing, and the backward of replicate, scatter and gather.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW dataparallel_times AS
WITH _named AS (
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
FROM _named n JOIN gpu_tracks t USING (run_id, rank)
WHERE (run_id, rank) IN (SELECT (run_id, rank) FROM dataparallel_broadcasts);

-- @view idle_gaps  a row is a gap of a device.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column host bool             Whether the host had queued nothing (host_wait).
-- @column blocked bool          Whether it begins in a blocking call.
CREATE VIEW idle_gaps AS
SELECT
    g.track, g.start_ns, g.end_ns, idle_cause(g.start_ns, g.end_ns, g.launch_ns, 30000) = 'host_wait' AS host,
    coalesce(g.start_ns <= b.end_ns, false) AS blocked
FROM device_gaps g
ASOF LEFT JOIN intervals_union('blocking_times') b ON g.track = b.track AND g.start_ns >= b.start_ns;

-- @view call_waits  a row is a kernel of a matched call of several ranks.
-- Communication, from the start of the rank's kernel to the start of the last, on the common clock of the ranks.
-- @column track index           The track that it stands on.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column call index            The call.
-- @column pair bool             Whether it is a send or receive.
-- @column last bool             Whether it started last, and others may have waited for it.
-- @column start_ns ns           Start.
-- @column end_ns ns             Start of the last one, or the kernel's own end if that is earlier.
CREATE VIEW call_waits AS
SELECT
    t.track, c.run_id, c.rank, c.call, c.source IS NOT NULL AS pair, c.last, c.start_ns,
    c.start_ns + c.wait_ns AS end_ns
FROM judged_calls('collective_kernels') c
JOIN gpu_tracks t ON t.run_id = c.run_id AND t.rank = c.rank AND t.device IS NOT DISTINCT FROM c.device
WHERE c.status = 'matched' AND c.ranks > 1 AND NOT c.one_process;

-- @view exposed_waits  a row is a stretch in which a GPU does nothing but wait for another rank.
-- @column track index           The track that it stands on.
-- @column pair bool             Whether in a send or receive.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW exposed_waits AS
SELECT track, owner.pair AS pair, start_ns, end_ns
FROM exposed_comm
WHERE owner.part = 'waiting' AND NOT owner.one_process;

-- @view latest_ranks  a row is a run: the rank that others waited for longest, in collectives or in pairs.
-- While it waited for no one: who comes last because it waits itself passes that on.
-- @column run_id id             The run.
-- @column pair bool             Whether in sends and receives.
-- @column rank index            Process rank.
-- @column blocked_ns ns         How long others waited for it.
-- @column calls count           Calls that it took part in.
-- @column times_last count      In which it was the last.
CREATE VIEW latest_ranks AS
WITH _waits AS MATERIALIZED (
    SELECT {'track': track, 'pair': pair} AS track, run_id, rank, call, last, start_ns, end_ns FROM call_waits
),
_held_up AS (
    SELECT l.track, w.start_ns, w.end_ns FROM _waits l JOIN _waits w USING (call) WHERE l.last
),
_blocked AS (
    SELECT track, sum(end_ns - start_ns) AS ns FROM intervals_subtraction('_held_up', '_waits') GROUP BY track
),
_by_track AS (
    SELECT run_id, rank, track, any_value(track.pair) AS pair, count(*) AS calls, count(*) FILTER (last) AS times_last
    FROM _waits
    GROUP BY run_id, rank, track
),
_by_rank AS (
    SELECT
        run_id, pair, rank, coalesce(sum(ns), 0)::BIGINT AS blocked_ns, sum(calls)::BIGINT AS calls,
        sum(times_last)::BIGINT AS times_last
    FROM _by_track LEFT JOIN _blocked USING (track)
    GROUP BY run_id, pair, rank
)
SELECT *
FROM _by_rank
QUALIFY row_number() OVER (PARTITION BY run_id, pair ORDER BY blocked_ns DESC, times_last DESC, rank) = 1;

-- @view unknown_waits  a row is a run of which some waits are not known.
-- @column run_id id             The run.
-- @column note text             How a finding says so.
CREATE VIEW unknown_waits AS
WITH _counts AS (
    SELECT
        run_id, count(*) FILTER (status = 'point_to_point') AS pairs,
        count(*) FILTER (status NOT IN ('matched', 'point_to_point')) AS others
    FROM judged_calls('collective_kernels')
    GROUP BY run_id
)
SELECT
    run_id, '; waits in ' || concat_ws(
        ' and ', CASE WHEN pairs > 0 THEN counted(pairs, 'point-to-point kernel', 'point-to-point kernels') END,
        CASE WHEN others > 0 THEN counted(others, 'kernel', 'kernels') || ' of unmatched calls' END
    ) || ' are not known' AS note
FROM _counts
WHERE pairs + others > 0;

-- @view tracked_memcpys  a row is a memcpy.
-- @column track index           The track that it stands on.
-- @column run_id id             The run.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column bytes B               Size.
-- @column small bool            Whether it is one between host and device under 64 KiB.
-- @column pageable bool         Whether it is one from or to pageable memory.
-- @column managed bool          Whether pages of managed memory moved, which no call of the program copied.
CREATE VIEW tracked_memcpys AS
SELECT
    t.track, m.run_id, m.start_ns, m.start_ns + m.dur_ns AS end_ns, m.bytes,
    coalesce(m.kind IN ('HtoD', 'DtoH') AND m.bytes < 65536, false) AS small,
    coalesce('Pageable' IN (m.src_memory, m.dst_memory), false) AS pageable,
    coalesce(starts_with(m.kind, 'Unified '), false) AS managed
FROM memcpys m
JOIN gpu_tracks t ON t.run_id = m.run_id AND t.rank = m.rank AND t.device IS NOT DISTINCT FROM m.device;

-- @macro run_times(t)  how much time the disjoint intervals of `t` are, of all GPUs of a run.
-- @column run_id id The run.
-- @column pieces count Intervals.
-- @column ns ns Their length.
-- @column longest row rank, device, start_ns and end_ns of the longest of them, the first of several.
-- @column source text The line of the program that most of their time comes from (source_times); NULL if not known.
CREATE MACRO run_times(t) AS TABLE
WITH _run_pieces AS MATERIALIZED (
    SELECT track, start_ns, end_ns, start_ns AS window_id FROM query_table(t)
),
_run_windows AS (
    SELECT * FROM _run_pieces WHERE track IN (SELECT track FROM source_times)
),
_sources AS (
    SELECT run_id, source
    FROM intervals_cut('source_times', '_run_windows') JOIN gpu_tracks USING (track)
    GROUP BY run_id, source
    QUALIFY row_number() OVER (
        PARTITION BY run_id ORDER BY sum(end_ns - start_ns) DESC, min(start_ns), source
    ) = 1
),
_sums AS (
    SELECT
        run_id, count(*) AS pieces, sum(end_ns - start_ns) AS ns, longest(rank, device, start_ns, end_ns) AS longest
    FROM _run_pieces JOIN gpu_tracks USING (track)
    GROUP BY run_id
)
SELECT * FROM _sums LEFT JOIN _sources USING (run_id);

-- @macro run_time_outside(a, b)  how much time of `a` is not in `b`, likewise.
-- @column * of run_times
CREATE MACRO run_time_outside(a, b) AS TABLE
WITH _run_outside AS (
    SELECT * FROM intervals_subtraction(a, b)
)
SELECT * FROM run_times('_run_outside');

-- @macro run_time_within(a, b)  how much time of `a` is in `b`, likewise.
-- @column * of run_times
CREATE MACRO run_time_within(a, b) AS TABLE
WITH _run_within AS (
    SELECT * FROM intervals_intersection(a, b)
)
SELECT * FROM run_times('_run_within');

-- @macro run_time_covered(t)  how much time the intervals of `t` cover, likewise.
-- @column * of run_times
CREATE MACRO run_time_covered(t) AS TABLE
WITH _run_covered AS (
    SELECT * FROM intervals_union(t)
)
SELECT * FROM run_times('_run_covered');
