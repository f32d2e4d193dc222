-- Fully sharded data parallelism: which collectives gather and reduce which module, and when a module needs its
-- parameters.
-- @use collective_calls, comm_exposed, gpu_tracks, intervals, launch_calls

-- @table fsdp_ranges  a row is a range that torch's FSDP opens around its work on the CPU.
-- FSDP2 (`fully_shard`) names the module in it. FSDP1 (`FullyShardedDataParallel`) names none, and has the ranges of a
-- prefetch once for each module with parameters, before the module runs.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
-- @column what text             gather, reduce, use (before the module first uses what was gathered), or pass (what is
--                               gathered inside it is for that pass).
-- @column module text           FSDP2's name of the module, (root) for the outermost; NULL of FSDP1.
-- @column pass text             forward or backward; NULL where the range does not say.
-- @column fsdp index            1 or 2.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE TABLE fsdp_ranges AS
WITH _said AS (
    SELECT
        run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns,
        regexp_extract(
            name, '^FSDP::(\w+)(?: for .*?)?(?: \((.*?)\))?(?: \[pg=\d+\])?$', ['what', 'module']
        ) AS second,
        regexp_extract(name, '^FullyShardedDataParallel\.(_\w+)$', 1) AS first
    FROM ranges
    WHERE origin IN ('record_function', 'nvtx') AND dur_ns IS NOT NULL
        AND (starts_with(name, 'FSDP::') OR starts_with(name, 'FullyShardedDataParallel._'))
),
_kinds(fsdp, name, what, pass) AS (
    VALUES
        (2, 'all_gather', 'gather', NULL), (2, 'all_gather_copy_out', 'use', NULL),
        (2, 'post_backward_reduce', 'reduce', 'backward'),
        (2, 'pre_forward', 'pass', 'forward'), (2, 'forward_prefetch', 'pass', 'forward'),
        (2, 'pre_backward', 'pass', 'backward'), (2, 'backward_prefetch', 'pass', 'backward'),
        (1, '_pre_forward', 'gather', 'forward'), (1, '_pre_forward_prefetch', 'gather', 'forward'),
        (1, '_pre_forward_prefetch', 'use', 'forward'),
        (1, '_pre_backward_hook', 'gather', 'backward'), (1, '_pre_backward_prefetch', 'gather', 'backward'),
        (1, '_pre_backward_prefetch', 'use', 'backward'), (1, '_post_backward_prefetch', 'gather', 'backward'),
        (1, '_post_backward_hook', 'reduce', 'backward')
)
SELECT
    run_id, rank, tid, k.what, CASE WHEN fsdp = 2 THEN coalesce(nullif(second.module, ''), '(root)') END AS module,
    pass, fsdp, start_ns, end_ns
FROM _said s JOIN _kinds k ON k.name = CASE WHEN fsdp = 2 THEN second.what ELSE first END;

-- @view fsdp_passes  a row is a forward pass of FSDP1: its outermost forward, until the next one begins.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column turn index            Which one it is.
-- @column start_ns ns           Start.
CREATE VIEW fsdp_passes AS
WITH _forwards AS (
    SELECT run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns
    FROM ranges
    WHERE origin IN ('record_function', 'nvtx') AND name = 'FullyShardedDataParallel.forward' AND dur_ns IS NOT NULL
),
_outermost AS (
    SELECT * FROM _forwards QUALIFY coalesce(end_ns > furthest_end((run_id, rank, tid), start_ns, end_ns), true)
)
SELECT run_id, rank, row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns) AS turn, start_ns FROM _outermost;

-- @view fsdp_launched  a row is a kernel of a collective that FSDP launched.
-- That is an all_gather launched inside a range that gathers, a reduce_scatter or all_reduce inside one that reduces.
-- @column * of collective_kernels
-- @column status text           What is known of its call.
-- @column wait_ns ns            Of matched calls: what it waits for the last rank of its call.
-- @column tid id                Thread of its launch call.
-- @column launch_ns ns          Start of that.
-- @column fsdp index            1 or 2.
-- @column module text           FSDP2's name of the module; NULL of FSDP1.
-- @column pass text             forward or backward; NULL where no range says.
-- @column range_ns ns           Start of the range.
CREATE VIEW fsdp_launched AS
WITH _known AS (
    SELECT DISTINCT run_id, rank FROM fsdp_ranges
),
_kernels AS (
    SELECT
        c.* EXCLUDE (ranks, last_start_ns, first_end_ns, buffered, last), l.tid, l.start_ns AS launch_ns,
        CASE WHEN c.collective = 'all_gather' THEN 'gather' ELSE 'reduce' END AS what
    FROM judged_calls('collective_kernels') c
    JOIN _known USING (run_id, rank)
    JOIN launch_calls('collective_kernels') l USING (run_id, rank, correlation_id)
    WHERE c.collective IN ('all_gather', 'reduce_scatter', 'all_reduce')
),
_inside AS (
    SELECT k.* EXCLUDE (what), r.fsdp, r.module, r.pass, r.start_ns AS range_ns
    FROM _kernels k
    ASOF JOIN fsdp_ranges r
        ON r.run_id = k.run_id AND r.rank = k.rank AND r.tid = k.tid AND r.what = k.what AND k.launch_ns >= r.start_ns
    WHERE k.launch_ns < r.end_ns
)
SELECT i.* REPLACE (coalesce(i.pass, CASE WHEN i.launch_ns < p.end_ns THEN p.pass END) AS pass)
FROM _inside i
ASOF LEFT JOIN (SELECT * FROM fsdp_ranges WHERE what = 'pass') p
    ON p.run_id = i.run_id AND p.rank = i.rank AND p.tid = i.tid AND i.launch_ns >= p.start_ns;

-- @view fsdp_uses  a row is the first use of what was gathered: the first GPU work that FSDP2 launches to copy it out,
-- or that FSDP1 launches behind its prefetch.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column module text           FSDP2's name of the module; NULL of FSDP1.
-- @column pass text             forward or backward, of FSDP1.
-- @column range_ns ns           Start of its range.
-- @column needed_ns ns          When the use could have begun but for what was gathered: its launch call has begun and
--                               the work before it on its stream has ended. NULL where the use was not recorded.
-- @column used_ns ns            When it began.
CREATE VIEW fsdp_uses AS
WITH _uses AS (
    SELECT *, CASE WHEN fsdp = 2 THEN start_ns ELSE end_ns END AS at_ns FROM fsdp_ranges WHERE what = 'use'
),
_threads AS (
    SELECT DISTINCT run_id, rank, tid FROM _uses
),
_calls AS (
    SELECT DISTINCT run_id, rank, call_tid AS tid, correlation_id, call_start_ns AS launch_ns
    FROM gpu_work SEMI JOIN _threads t ON t.run_id = gpu_work.run_id AND t.rank = gpu_work.rank AND t.tid = call_tid
),
_first_calls AS (
    SELECT u.*, l.correlation_id, l.launch_ns
    FROM _uses u
    ASOF LEFT JOIN _calls l ON l.run_id = u.run_id AND l.rank = u.rank AND l.tid = u.tid AND u.at_ns <= l.launch_ns
),
_streams AS (
    SELECT row_number() OVER () AS track, *
    FROM (SELECT DISTINCT run_id, rank, device, stream FROM gpu_work SEMI JOIN _threads USING (run_id, rank))
),
_on_streams AS (
    SELECT s.track, s.run_id, s.rank, w.correlation_id, w.start_ns, w.start_ns + w.dur_ns AS end_ns
    FROM gpu_work w JOIN _streams s
        ON s.run_id = w.run_id AND s.rank = w.rank AND s.device IS NOT DISTINCT FROM w.device
        AND s.stream IS NOT DISTINCT FROM w.stream
),
_launched AS (
    SELECT
        run_id, rank, correlation_id, min(w.start_ns) AS used_ns,
        arg_min(coalesce(w.reached_ns, f.launch_ns), w.start_ns) AS before_ns
    FROM intervals_reached('_on_streams') w
    JOIN (SELECT DISTINCT run_id, rank, correlation_id, launch_ns FROM _first_calls) f
        USING (run_id, rank, correlation_id)
    GROUP BY run_id, rank, correlation_id
),
_used AS (
    SELECT f.* EXCLUDE (correlation_id), l.used_ns, l.before_ns
    FROM _first_calls f LEFT JOIN _launched l USING (run_id, rank, correlation_id)
)
SELECT
    * EXCLUDE (what, fsdp, tid, start_ns, end_ns, at_ns, launch_ns, before_ns, used_ns), start_ns AS range_ns,
    CASE WHEN fsdp = 1 OR launch_ns < end_ns THEN greatest(launch_ns, before_ns) END AS needed_ns,
    CASE WHEN fsdp = 1 OR launch_ns < end_ns THEN used_ns END AS used_ns
FROM _used;

-- @table fsdp_kernels  a row is a kernel of a collective that FSDP launched, with its module and what it is in time for.
-- A module of FSDP1 is its number in the forward pass, inferred by order: as many are gathered as used in a pass, and
-- the backward pass uses and reduces them in the opposite order. Where the numbers differ, it is not known.
-- @column * of fsdp_launched
-- @column by_order bool         Whether the module is inferred.
-- @column needed_ns ns          Of an all_gather: when its first use could have begun but for it, on the rank's clock.
-- @column used_ns ns            When that began.
CREATE TABLE fsdp_kernels AS
WITH _second AS (
    SELECT l.*, u.needed_ns, u.used_ns
    FROM (SELECT *, CASE WHEN collective = 'all_gather' THEN module END AS used FROM fsdp_launched WHERE fsdp = 2) l
    ASOF LEFT JOIN fsdp_uses u
        ON u.run_id = l.run_id AND u.rank = l.rank AND u.module = l.used AND l.range_ns <= u.range_ns
),
_first AS (
    SELECT
        l.*, p.turn, row_number() OVER (one ORDER BY l.launch_ns) AS number, count(*) OVER one AS found
    FROM (SELECT * FROM fsdp_launched WHERE fsdp = 1) l
    ASOF JOIN fsdp_passes p ON p.run_id = l.run_id AND p.rank = l.rank AND l.launch_ns >= p.start_ns
    WINDOW one AS (PARTITION BY l.run_id, l.rank, l.device, p.turn, l.pass, l.collective)
),
_first_uses AS (
    SELECT
        u.*, p.turn, row_number() OVER (one ORDER BY u.range_ns) AS number, count(*) OVER one AS uses,
        count(CASE WHEN u.pass = 'forward' THEN 1 END) OVER (PARTITION BY u.run_id, u.rank, p.turn) AS modules
    FROM (SELECT * FROM fsdp_uses WHERE module IS NULL) u
    ASOF JOIN fsdp_passes p ON p.run_id = u.run_id AND p.rank = u.rank AND u.range_ns >= p.start_ns
    WINDOW one AS (PARTITION BY u.run_id, u.rank, p.turn, u.pass)
)
SELECT
    f.* EXCLUDE (turn, number, found) REPLACE (
        CASE WHEN u.pass = 'forward' THEN '#' || f.number WHEN uses = modules THEN '#' || (modules + 1 - f.number) END
            AS module
    ),
    true AS by_order, CASE WHEN f.collective = 'all_gather' THEN u.needed_ns END AS needed_ns,
    CASE WHEN f.collective = 'all_gather' THEN u.used_ns END AS used_ns
FROM _first f
LEFT JOIN _first_uses u
    ON u.run_id = f.run_id AND u.rank = f.rank AND u.turn = f.turn AND u.pass = f.pass AND u.number = f.number
    AND u.uses = f.found
UNION ALL BY NAME
SELECT * EXCLUDE (used), false AS by_order FROM _second;

-- @view fsdp_stalls  a row is a stretch in which the first use of a module waits for its all_gather.
-- From when it is needed to the end of the all_gather, or to the start of the use if that is earlier.
-- @column track index           The track that it stands on.
-- @column run_id id             The run.
-- @column call index            The call.
-- @column module text           Module; NULL if not known.
-- @column pass text             forward or backward.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW fsdp_stalls AS
SELECT
    t.track, k.run_id, k.call, k.module, k.pass, needed_ns AS start_ns, least(own_start_ns + dur_ns, used_ns) AS end_ns
FROM fsdp_kernels k
JOIN gpu_tracks t ON t.run_id = k.run_id AND t.rank = k.rank AND t.device IS NOT DISTINCT FROM k.device
WHERE needed_ns < least(own_start_ns + dur_ns, used_ns);

-- @view late_unshards  a row is a stretch in which a GPU has nothing to do but an all_gather that its module needs.
-- Of `fsdp_stalls` what no compute hides, without what is waiting for another rank.
-- @column track index           The track that it stands on.
-- @column module text           Module; NULL if not known.
-- @column pass text             forward or backward.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW late_unshards AS
SELECT e.track, s.module, s.pass, greatest(e.start_ns, s.start_ns) AS start_ns, least(e.end_ns, s.end_ns) AS end_ns
FROM exposed_comm e JOIN fsdp_stalls s ON s.track = e.track AND s.call = e.owner.call
WHERE e.owner.part <> 'waiting' AND e.start_ns < s.end_ns AND s.start_ns < e.end_ns;
