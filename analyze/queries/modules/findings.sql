-- Time per GPU for findings (analyze/advice), as intervals on its track. Each ns belongs to one cause, the first that
-- applies. Idle time: profiler, lazy loading, autotuning, compilation, waits for data, blocking calls, DataParallel,
-- launch-bound. Communication: waits for a straggler, waits for a peer of a send or receive, DataParallel's broadcasts,
-- late FSDP all_gathers, other communication. Copies: managed memory, small copies, pageable memory, other copies.
-- @use collectives, common_start, exposed_comm, gpu_gaps, gpu_timeline, intervals, kernel_limits, launches, phases,
--     profiler_cost, serving_steps, source_times, steps, workload_kinds

-- @table lone_gaps  a row is a GPU with a gap that has more than 90 % of its idle time in three or more steps, or in
--   ten or more gaps. It is of no step, so it is a finding of its own.
-- @columns track, start_ns, end_ns
CREATE TABLE lone_gaps AS
SELECT track, longest.start_ns, longest.end_ns
FROM (
    SELECT
        track, run_id, rank, count(*) AS gaps, sum(end_ns - start_ns) AS idle_ns,
        arg_max({'start_ns': start_ns, 'end_ns': end_ns}, end_ns - start_ns) AS longest
    FROM gpu_idle
    GROUP BY track, run_id, rank
)
WHERE 10 * (longest.end_ns - longest.start_ns) > 9 * idle_ns
    AND (gaps >= 10 OR (run_id, rank) IN (SELECT (run_id, rank) FROM rank_starts WHERE steps >= 3));

-- @macro loads_code(name)  whether a range of Kineto or a CUDA call loads kernels.
CREATE MACRO loads_code(name) AS regexp_matches(
    name, '^(Runtime Triggered Module Loading|Lazy Function Loading)|^(cu|hip)(Module|Library)Load'
);

-- @table run_gpus  a row is a run with GPU work: its number of GPUs over all ranks, and means over them.
-- A saving on one of several GPUs counts in proportion: findings divide by `gpus`.
-- @columns run_group, run_id
-- @column gpus count              GPUs of all ranks that the trace has.
-- @column span_ns ns              Mean span.
-- @column idle_ns ns              Mean idle time without a lone gap (lone_gaps).
-- @column undisturbed_idle_ns ns  Mean idle time of the recorded steps without the profiler; NULL if not known.
-- @column exposed_comm_ns ns      Mean communication time without concurrent compute.
-- @column comm_ns ns              Mean union of communication kernels.
-- @column exposed_copy_ns ns      Mean time of copies without a concurrent kernel.
-- @column copy_ns ns              Mean union of copies.
-- @column host_note text          Note on inflated host times; empty for nothing.
CREATE TABLE run_gpus AS
SELECT
    t.run_group, t.run_id, count(*) AS gpus, avg(span_ns) AS span_ns,
    avg(span_ns - busy_ns - coalesce(lone_ns, 0)) AS idle_ns,
    CASE WHEN count(u.undisturbed_idle_ns) = count(*) THEN avg(u.undisturbed_idle_ns) END AS undisturbed_idle_ns,
    avg(kernel_ns - compute_ns) AS exposed_comm_ns,
    avg(comm_ns) AS comm_ns, avg(busy_ns - kernel_ns) AS exposed_copy_ns, avg(copy_ns) AS copy_ns,
    CASE WHEN t.run_id IN (SELECT run_id FROM recording_facts WHERE python_stacks)
        THEN '; Python stacks were recorded, which inflates host time' ELSE '' END AS host_note
FROM gpu_lengths_span
JOIN gpu_tracks t ON t.track = window_id
LEFT JOIN (SELECT window_id, undisturbed_idle_ns FROM gpu_undisturbed_span) u USING (window_id)
LEFT JOIN (SELECT track AS window_id, end_ns - start_ns AS lone_ns FROM lone_gaps) USING (window_id)
GROUP BY t.run_group, t.run_id;

-- @view counted_launches  a row is a profiled launch of a run that has counters only.
-- @column * of launch_limits
CREATE VIEW counted_launches AS
FROM launch_limits SEMI JOIN (SELECT run_id FROM workload_kinds WHERE kind = 'counters only') USING (run_id);

-- @table run_spans  a row is a run with something to advise on: the length that savings are a share of.
-- Mean span of its GPUs; of a run on CPUs only the mean span of the operators of a rank; of a run with counters only
-- the durations of the kernels, mean over the ranks.
-- @columns run_group, run_id
-- @column span_ns ns              Length.
-- @column undisturbed_idle_ns ns  Mean idle time of the recorded steps without the profiler; NULL if not known.
-- @column ranks count             Ranks that it is a mean of; GPUs of a run with GPU work.
CREATE TABLE run_spans AS
WITH _operators AS (
    SELECT run_group, run_id, rank, max(start_ns + dur_ns) - min(start_ns) AS ns
    FROM cpu_ops SEMI JOIN (SELECT run_id FROM workload_kinds WHERE kind = 'CPU only') USING (run_id)
    GROUP BY ALL
),
_counters AS (
    SELECT run_group, run_id, rank, sum(dur_ns) AS ns
    FROM counted_launches
    GROUP BY ALL
)
SELECT run_group, run_id, span_ns, undisturbed_idle_ns, gpus AS ranks FROM run_gpus
UNION ALL
SELECT run_group, run_id, avg(ns), NULL, count(*) FROM _operators GROUP BY run_group, run_id
UNION ALL
SELECT run_group, run_id, avg(ns), NULL, count(*) FROM _counters GROUP BY run_group, run_id;

-- @view slowed_runs  a row is a run in which the profiler may have caused most of the host time: no undisturbed steps
--   were timed, and Python stacks were recorded, or most work finds an empty queue.
-- @columns run_id
CREATE VIEW slowed_runs AS
WITH _empty AS (
    SELECT run_id FROM empty_queue_launches GROUP BY run_id HAVING 2 * sum(empty) > sum(launched)
)
SELECT run_id
FROM run_gpus
WHERE undisturbed_idle_ns IS NULL
    AND (run_id IN (FROM _empty) OR run_id IN (SELECT run_id FROM recording_facts WHERE python_stacks));

-- @macro ms(ns)  a time as text.
CREATE MACRO ms(ns) AS printf('%.3f ms', coalesce(ns, 0)::DOUBLE / 1e6);

-- @macro counted(n, one, many)  a number of things as text.
CREATE MACRO counted(n, one, many) AS concat(n, ' ', CASE WHEN n = 1 THEN one ELSE many END);

-- @macro limit_findings(t)  what a finding about launches says: a table of launch_limits with a column `gain_ns`.
-- @columns run_group, run_id
-- @column saving_ns ns            What they could gain, mean over the ranks.
-- @column evidence text           How many they are, and which one could gain most.
-- @columns rank, device, start_ns, end_ns
-- @column source text             That launch and its kernel: counters name no source line.
-- @column most row                The launch that could gain most.
CREATE MACRO limit_findings(t) AS TABLE
SELECT
    g.run_group, run_id, s.gain_ns / ranks AS saving_ns,
    printf('%s, %s in total; most to gain: %s', counted(s.launches, 'kernel', 'kernels'), ms(s.ns), s.most_text)
        AS evidence,
    s.most.rank AS rank, s.most.device AS device, NULL::BIGINT AS start_ns, NULL::BIGINT AS end_ns,
    printf('launch %d, %s', s.most.launch_id, s.most.kernel) AS source, s.most
FROM limit_sums(t) s JOIN run_spans g USING (run_id);

-- @macro longest(rank, device, start_ns, end_ns)  rank, device, start and end of the longest interval, the first of
--   several.
CREATE MACRO longest(rank, device, start_ns, end_ns) AS arg_max(
    {'rank': rank, 'device': device, 'start_ns': start_ns, 'end_ns': end_ns},
    CASE WHEN end_ns - start_ns IS NOT NULL THEN (end_ns - start_ns, -start_ns, -rank, -coalesce(device, 0)) END
);

-- @macro and_part(ns, what)  a further part of a finding's evidence; empty for 0 ns.
CREATE MACRO and_part(ns, what) AS CASE WHEN ns > 0 THEN printf('; %s %s', ms(ns), what) ELSE '' END;

-- @view tracked_kernels  a row is a kernel.
-- @columns track, run_id, rank, device
-- @column name text               Name.
-- @column op_name text            Operator that launched it; NULL if not known.
-- @columns start_ns, end_ns
CREATE VIEW tracked_kernels AS
SELECT
    t.track, k.run_id, k.rank, k.device, k.name, CASE WHEN k.op_id > 0 THEN k.op_name END AS op_name, k.start_ns,
    k.start_ns + k.dur_ns AS end_ns
FROM gpu_work k JOIN gpu_tracks t ON t.run_id = k.run_id AND t.rank = k.rank AND t.device IS NOT DISTINCT FROM k.device
WHERE k.kind = 'kernel';

-- @view kernel_times  a row is a segment of a GPU with kernels.
-- @columns track, start_ns, end_ns
CREATE VIEW kernel_times AS SELECT track, start_ns, end_ns FROM gpu_timeline WHERE kernels > 0;

-- @view profiler_times  a row is work of the profiler, on each GPU track of its process.
-- @columns track, start_ns, end_ns
CREATE VIEW profiler_times AS
SELECT t.track, o.start_ns, o.start_ns + o.dur_ns AS end_ns
FROM profiler_overhead o JOIN gpu_tracks t USING (run_id, rank)
WHERE NOT loads_code(name);

-- @view set_up_calls  a row is work that a program does once: CUDA loads kernels (loading), kernels are autotuned
--   (autotuning), torch.compile compiles (compilation).
-- cudaEventElapsedTime inside an operator means that it times kernels, as cuDNN's benchmark does.
-- @columns run_id, rank
-- @column what text               loading, autotuning or compilation.
-- @column name text               Range, operator or CUDA call.
-- @columns start_ns, end_ns
CREATE VIEW set_up_calls AS
WITH _timers AS (
    SELECT run_id, rank, tid, start_ns FROM cuda_calls WHERE name IN ('cudaEventElapsedTime', 'hipEventElapsedTime')
)
SELECT run_id, rank, 'loading' AS what, name, start_ns, start_ns + dur_ns AS end_ns
FROM profiler_overhead
WHERE loads_code(name)
UNION ALL
SELECT run_id, rank, 'loading', name, start_ns, start_ns + dur_ns FROM cuda_calls WHERE loads_code(name)
UNION ALL
SELECT run_id, rank, what, name, start_ns, start_ns + dur_ns
FROM (
    SELECT
        run_id, rank, name, start_ns, dur_ns, CASE
            WHEN regexp_matches(name, '(?i)autotun|benchmark_all_configs|do_bench') THEN 'autotuning'
            WHEN contains(name, 'dynamo_timed') THEN 'compilation' END AS what
    FROM call_tree
    WHERE kind IN ('op', 'range')
)
WHERE what IS NOT NULL
UNION ALL
SELECT o.run_id, o.rank, 'autotuning', any_value(o.name), o.start_ns, o.start_ns + any_value(o.dur_ns)
FROM cpu_ops o JOIN _timers c
    ON c.run_id = o.run_id AND c.rank = o.rank AND c.tid = o.tid AND c.start_ns >= o.start_ns
    AND c.start_ns < o.start_ns + o.dur_ns
GROUP BY o.run_id, o.rank, o.tid, o.start_ns;

-- @table set_up_times  a row is an interval of such work on each GPU track of its process; all are disjoint: loading
--   comes before autotuning, and that before compilation.
-- @columns track
-- @column what text               loading, autotuning or compilation.
-- @columns start_ns, end_ns
CREATE TABLE set_up_times AS
WITH _calls AS MATERIALIZED (
    SELECT t.track, c.what, c.start_ns, c.end_ns
    FROM set_up_calls c JOIN gpu_tracks t USING (run_id, rank)
    WHERE c.end_ns > c.start_ns
),
_loading AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM _calls WHERE what = 'loading'
),
_autotuning AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM _calls WHERE what = 'autotuning'
),
_compilation AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM _calls WHERE what = 'compilation'
),
_sooner AS (
    SELECT * FROM _loading UNION ALL SELECT * FROM _autotuning
)
SELECT track, 'loading' AS what, start_ns, end_ns FROM intervals_union('_loading')
UNION ALL
SELECT track, 'autotuning', start_ns, end_ns FROM intervals_subtract('_autotuning', '_loading')
UNION ALL
SELECT track, 'compilation', start_ns, end_ns FROM intervals_subtract('_compilation', '_sooner');

-- @view unevenness  a row is a step of training, prefill or decode of a rank with four or more of its kind.
-- Not of runs whose GPUs are idle for less than a tenth of the time: their CPU works ahead, and its steps measure
-- nothing.
-- @columns run_id, rank
-- @column kind text               training, prefill, decode or mixed.
-- @column turn index              Position among them, from 0.
-- @columns start_ns, end_ns
-- @column usual_ns ns             The lower quartile of their lengths.
-- @column slow bool               Whether it is more than 1.5 times as long as that.
-- @column warm_up bool            Whether it is slow and no later step is: the slow ones all come first.
CREATE VIEW unevenness AS
WITH _steps AS (
    SELECT run_id, rank, 'training' AS kind, start_ns, end_ns FROM step_windows
    UNION ALL
    SELECT run_id, rank, kind, start_ns, end_ns
    FROM serving_steps
    WHERE end_ns < 9223372036854775807 AND (run_id, rank) NOT IN (SELECT (run_id, rank) FROM step_windows)
),
_numbered AS (
    SELECT
        *, row_number() OVER (PARTITION BY run_id, rank, kind ORDER BY start_ns) - 1 AS turn,
        quantile_cont(end_ns - start_ns, 0.25) OVER (PARTITION BY run_id, rank, kind) AS usual_ns,
        end_ns - start_ns > 1.5 * usual_ns AS slow
    FROM _steps
    WHERE run_id NOT IN (SELECT run_id FROM run_gpus WHERE 10 * idle_ns < span_ns)
    QUALIFY count(*) OVER (PARTITION BY run_id, rank, kind) >= 4
)
SELECT
    run_id, rank, kind, turn, start_ns, end_ns, usual_ns, slow, slow AND max(CASE WHEN slow THEN turn END) OVER steps
        < min(CASE WHEN NOT slow THEN turn END) OVER steps AS warm_up
FROM _numbered
WINDOW steps AS (PARTITION BY run_id, rank, kind);

-- @view data_times  a row is a wait for data, on each GPU track of its process.
-- @columns track, start_ns, end_ns
CREATE VIEW data_times AS
SELECT t.track, p.start_ns, p.start_ns + p.dur_ns AS end_ns
FROM phase_ranges p JOIN gpu_tracks t USING (run_id, rank)
WHERE p.phase = 'data';

-- @view blocking_times  a row is a blocking call, on each GPU track of its process.
-- @columns track, start_ns, end_ns
CREATE VIEW blocking_times AS
SELECT t.track, c.start_ns, c.end_ns FROM blocking_calls c JOIN gpu_tracks t USING (run_id, rank);

-- @view dataparallel_broadcasts  a row is a broadcast of a process that broadcasts to several of its GPUs, as
--   DataParallel does to replicate its module.
-- @columns track, run_id, rank, device
-- @column name text               Name.
-- @column op_name text            Operator that launched it; NULL if not known.
-- @columns start_ns, end_ns
CREATE VIEW dataparallel_broadcasts AS
SELECT k.*
FROM tracked_kernels k JOIN kernel_names n USING (run_id, name)
WHERE n.collective = 'broadcast'
WINDOW processes AS (PARTITION BY k.run_id, k.rank)
QUALIFY max(k.device) OVER processes > min(k.device) OVER processes;

-- @view dataparallel_times  a row is DataParallel's own work on the host, on each GPU track of its process.
-- Its forward (replicate, scatter, the replicas' threads, gather; the collector's range `forward` without torch's own),
-- and the backward of replicate, scatter and gather.
-- @columns track, start_ns, end_ns
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

-- @view usual_idle  a row is a gap of a device other than a lone one.
-- @columns track, start_ns, end_ns
CREATE VIEW usual_idle AS
SELECT track, start_ns, end_ns FROM gpu_idle ANTI JOIN lone_gaps USING (track, start_ns);

-- @view idle_gaps  a row is a gap of a device other than a lone one.
-- @columns track, start_ns, end_ns
-- @column host bool               Whether nothing was queued (host_wait).
-- @column blocked bool            Whether it begins in a blocking call.
CREATE VIEW idle_gaps AS
SELECT
    g.track, g.start_ns, g.end_ns, idle_cause(g.start_ns, g.end_ns, g.launch_ns, g.alone, 30000) = 'host_wait' AS host,
    coalesce(g.start_ns <= b.end_ns, false) AS blocked
FROM (FROM device_gaps ANTI JOIN lone_gaps USING (track, start_ns)) g
ASOF LEFT JOIN intervals_union('blocking_times') b ON g.track = b.track AND g.start_ns >= b.start_ns;

-- @view call_waits  a row is a kernel of a matched call of several ranks: from its start to the latest start, on the
--   common clock of the ranks, without waiting that is an artifact of the recording.
-- @columns track, run_id, rank
-- @column call index              The call.
-- @column pair bool               Whether it is a send or receive.
-- @column last bool               Whether it started last.
-- @columns start_ns
-- @column end_ns ns               Latest start of the call, or the kernel's own end if that is earlier.
CREATE VIEW call_waits AS
SELECT
    t.track, c.run_id, c.rank, c.call, c.source IS NOT NULL AS pair, c.last, c.start_ns + c.excluded_ns AS start_ns,
    c.start_ns + c.excluded_ns + c.wait_ns AS end_ns
FROM matched_collectives('collective_kernels') c
JOIN gpu_tracks t ON t.run_id = c.run_id AND t.rank = c.rank AND t.device IS NOT DISTINCT FROM c.device
WHERE c.status = 'matched' AND c.ranks > 1 AND NOT c.one_process;

-- @view exposed_waits  a row is an interval in which a GPU only waits for another rank.
-- @columns track
-- @column pair bool               Whether in a send or receive.
-- @columns start_ns, end_ns
CREATE VIEW exposed_waits AS
SELECT track, owner.pair AS pair, start_ns, end_ns
FROM exposed_comm
WHERE owner.part = 'waiting' AND NOT owner.one_process;

-- @view blocking_times_of_ranks  a row is an interval in which others wait for a rank, in collectives or in pairs,
--   while it does not wait itself.
-- A rank that is late because it waits for another one blocks nobody meanwhile.
-- @columns track
-- @column pair bool               Whether in sends and receives.
-- @columns start_ns, end_ns
CREATE VIEW blocking_times_of_ranks AS
WITH _waits AS MATERIALIZED (
    SELECT {'track': track, 'pair': pair} AS track, call, last, start_ns, end_ns FROM call_waits
),
_held_up AS (
    SELECT l.track, w.start_ns, w.end_ns FROM _waits l JOIN _waits w USING (call) WHERE l.last
)
SELECT track.track AS track, track.pair AS pair, start_ns, end_ns FROM intervals_subtract('_held_up', '_waits');

-- @view latest_ranks  a row is the rank of a run that others waited for longest, in collectives or in pairs, while it
--   did not wait itself.
-- @columns run_id
-- @column pair bool               Whether in sends and receives.
-- @columns rank
-- @column blocked_ns ns           How long others waited for it.
-- @column calls count             Calls that it took part in.
-- @column times_last count        Calls in which it was last.
CREATE VIEW latest_ranks AS
WITH _blocked AS (
    SELECT track, pair, sum(end_ns - start_ns) AS ns FROM blocking_times_of_ranks GROUP BY track, pair
),
_by_track AS (
    SELECT run_id, rank, track, pair, count(*) AS calls, count(*) FILTER (last) AS times_last
    FROM call_waits
    GROUP BY run_id, rank, track, pair
),
_by_rank AS (
    SELECT
        run_id, pair, rank, coalesce(sum(ns), 0)::BIGINT AS blocked_ns, sum(calls)::BIGINT AS calls,
        sum(times_last)::BIGINT AS times_last
    FROM _by_track LEFT JOIN _blocked USING (track, pair)
    GROUP BY run_id, pair, rank
)
SELECT *
FROM _by_rank
QUALIFY row_number() OVER (PARTITION BY run_id, pair ORDER BY blocked_ns DESC, times_last DESC, rank) = 1;

-- @view unknown_waits  a row is a run with waits that are not known.
-- @columns run_id
-- @column note text               Text for the evidence of a finding.
CREATE VIEW unknown_waits AS
WITH _counts AS (
    SELECT
        run_id, count(*) FILTER (status = 'point_to_point') AS pairs,
        count(*) FILTER (status NOT IN ('matched', 'point_to_point')) AS others
    FROM matched_collectives('collective_kernels')
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
-- @columns track, run_id, start_ns, end_ns
-- @column bytes B                 Size.
-- @column small bool              Whether it is a copy under 64 KiB between host and device.
-- @column pageable bool           Whether it is from or to pageable memory.
-- @column managed bool            Whether it is a page migration of managed memory.
-- @column to_device bool          Whether it is from the host to the GPU.
CREATE VIEW tracked_memcpys AS
SELECT
    t.track, m.run_id, m.start_ns, m.start_ns + m.dur_ns AS end_ns, m.bytes,
    coalesce(m.kind IN ('HtoD', 'DtoH') AND m.bytes < 65536, false) AS small,
    coalesce('Pageable' IN (m.src_memory, m.dst_memory), false) AS pageable,
    coalesce(starts_with(m.kind, 'Unified '), false) AS managed, coalesce(m.kind = 'HtoD', false) AS to_device
FROM memcpys m
JOIN gpu_tracks t ON t.run_id = m.run_id AND t.rank = m.rank AND t.device IS NOT DISTINCT FROM m.device;

-- @view first_work  a row is a rank: when its program has begun to compute, that is its first training, prefill or
--   decode step, else its first kernel of a product or attention.
-- @columns run_id, rank, start_ns
CREATE VIEW first_work AS
WITH _steps AS (
    SELECT run_id, rank, start_ns FROM step_ranges UNION ALL SELECT run_id, rank, start_ns FROM serving_steps
),
_starts AS (
    SELECT run_id, rank, 0 AS level, start_ns FROM _steps
    UNION ALL
    SELECT run_id, rank, 1, start_ns
    FROM kernels JOIN kernel_names USING (run_id, name)
    WHERE family IN ('gemm', 'convolution', 'attention')
)
SELECT run_id, rank, arg_min(start_ns, (level, start_ns)) AS start_ns FROM _starts GROUP BY run_id, rank;

-- @view loading_copies  a row is one of ten or more copies to a GPU before its program has begun to compute: weights.
-- @column * of tracked_memcpys
CREATE VIEW loading_copies AS
SELECT m.*
FROM tracked_memcpys m JOIN gpu_tracks t USING (track, run_id) LEFT JOIN first_work f USING (run_id, rank)
WHERE m.to_device AND m.end_ns <= coalesce(f.start_ns, t.last_ns)
QUALIFY count(*) OVER (PARTITION BY m.track) >= 10;

-- @macro run_times(t)  the time of disjoint intervals, summed over all GPUs of a run.
-- @columns run_id
-- @column pieces count            Intervals.
-- @column ns ns                   Their length.
-- @column longest row             rank, device, start_ns and end_ns of the longest of them, the first of several.
-- @column source text             The line of the program that most of their time comes from (source_times); NULL if
--                                 not known.
CREATE MACRO run_times(t) AS TABLE
WITH _run_pieces AS MATERIALIZED (
    SELECT track, start_ns, end_ns, start_ns AS window_id FROM query_table(t)
),
_run_windows AS (
    SELECT * FROM _run_pieces WHERE track IN (SELECT track FROM source_times)
),
_sources AS (
    SELECT run_id, source
    FROM intervals_clip('source_times', '_run_windows') JOIN gpu_tracks USING (track)
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

-- @macro run_time_outside(a, b)  the time of `a` outside `b`, per run.
-- @column * of run_times
CREATE MACRO run_time_outside(a, b) AS TABLE
WITH _run_outside AS (
    SELECT * FROM intervals_subtract(a, b)
)
SELECT * FROM run_times('_run_outside');

-- @macro run_time_within(a, b)  the time of `a` inside `b`, per run.
-- @column * of run_times
CREATE MACRO run_time_within(a, b) AS TABLE
WITH _run_within AS (
    SELECT * FROM intervals_intersect(a, b)
)
SELECT * FROM run_times('_run_within');

-- @macro run_time_covered(t)  the time that the intervals of `t` cover, per run.
-- @column * of run_times
CREATE MACRO run_time_covered(t) AS TABLE
WITH _run_covered AS (
    SELECT * FROM intervals_union(t)
)
SELECT * FROM run_times('_run_covered');

-- @macro late_times(in_pairs)  what the rank did that others of its run waited for longest, while they waited.
-- @column * of run_times
-- @column idle_ns ns              Time of it in which its GPU ran no kernel.
CREATE MACRO late_times(in_pairs) AS TABLE
WITH _late AS (
    SELECT b.track, b.start_ns, b.end_ns
    FROM blocking_times_of_ranks b
    JOIN gpu_tracks t USING (track)
    JOIN latest_ranks r ON r.run_id = t.run_id AND r.rank = t.rank AND r.pair = b.pair
    WHERE b.pair = in_pairs
),
_working AS (
    SELECT run_id, ns FROM run_time_within('_late', 'kernel_times')
)
SELECT l.*, l.ns - coalesce(w.ns, 0) AS idle_ns FROM run_times('_late') l LEFT JOIN _working w USING (run_id);

-- @macro set_up_findings(asked, one, many)  what a finding says about the time in which a GPU is idle and its process
--   does such work; `one`, `many`: what a call of it is.
-- @column * of interval_findings
CREATE MACRO set_up_findings(asked, one, many) AS TABLE
WITH _asked_times AS (
    SELECT track, start_ns, end_ns FROM set_up_times WHERE what = asked
),
_own_times AS (
    SELECT * FROM intervals_subtract('_asked_times', 'profiler_times')
),
_idle AS (
    SELECT * FROM run_time_within('_own_times', 'usual_idle')
),
_counts AS (
    SELECT
        run_id, count(*) AS calls, arg_max(name, (end_ns - start_ns, -start_ns)) AS longest_name,
        max(end_ns - start_ns) AS longest_ns
    FROM set_up_calls
    WHERE what = asked
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s, the longest %s (%s); each GPU is idle for %s of them',
        counted(c.calls, one, many), ms(c.longest_ns), c.longest_name, ms(i.ns / gpus)) AS evidence,
    unnest(i.longest), i.source
FROM _idle i JOIN _counts c USING (run_id) JOIN run_gpus g USING (run_id);

-- @macro interval_findings(t, one, many)  what a finding says about intervals (run_id, rank, start_ns, end_ns) on the
--   CPU, mean over the ranks; `one`, `many`: what an interval is.
-- @columns run_group, run_id
-- @column saving_ns ns            What they could save.
-- @column evidence text           How many they are, and the longest.
-- @columns rank, device, start_ns, end_ns
-- @column source text             Line of the program; NULL if not known.
CREATE MACRO interval_findings(t, one, many) AS TABLE
WITH _sums AS (
    SELECT
        run_id, count(*) AS pieces, sum(end_ns - start_ns) AS ns,
        longest(rank, NULL::INTEGER, start_ns, end_ns) AS longest
    FROM query_table(t)
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, s.ns / g.ranks AS saving_ns,
    printf('%s, %s in total, the longest %s', counted(s.pieces, one, many), ms(s.ns),
        ms(s.longest.end_ns - s.longest.start_ns)) AS evidence,
    unnest(s.longest), NULL::VARCHAR AS source
FROM _sums s JOIN run_spans g USING (run_id);

-- @macro kernel_findings(t)  the kernels of a table like tracked_kernels that one finding is about, per run.
-- @columns run_id
-- @column calls count             Kernels.
-- @column ns ns                   Sum of their durations.
-- @column covered_ns ns           Time that they cover, summed over all GPUs of the run.
-- @column from_text text          A phrase: how many of them the operator with most of their time launched; empty if it
--                                 is not known.
-- @columns rank, device, start_ns, end_ns
-- @column source text             As in `run_times`.
CREATE MACRO kernel_findings(t) AS TABLE
WITH _total AS (
    SELECT run_id, count(*) AS calls, sum(end_ns - start_ns) AS ns FROM query_table(t) GROUP BY run_id
),
-- The operator with most of the time, and the longest of its kernels.
_operators AS (
    SELECT run_id, op_name, count(*) AS calls, longest(rank, device, start_ns, end_ns) AS longest
    FROM query_table(t)
    GROUP BY run_id, op_name
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY sum(end_ns - start_ns) DESC, op_name) = 1
)
SELECT
    run_id, k.calls, k.ns, b.ns AS covered_ns, coalesce(printf('; %d of them from %s', o.calls, o.op_name), '')
        AS from_text, unnest(o.longest), b.source
FROM _total k JOIN _operators o USING (run_id) JOIN run_time_covered(t) b USING (run_id);
