-- Fully sharded data parallelism (FSDP): the collectives of each module, and when a module needs its parameters.
-- @use collectives, exposed_comm, gpu_timeline, intervals

-- @table fsdp_ranges  a row is a range that torch's FSDP opens around its work on the CPU.
-- FSDP2 (`fully_shard`) names the module. FSDP1 (`FullyShardedDataParallel`) does not, and has a prefetch range for
-- each module with parameters before the module runs.
-- @columns run_id, rank, tid
-- @column what text               gather, reduce, use (before the first use of gathered parameters), or pass (gathers
--                                 inside it are for that pass).
-- @column module text             FSDP2's name of the module, (root) for the outermost; NULL for FSDP1.
-- @column pass text               forward or backward; NULL if not known.
-- @column fsdp index              1 or 2.
-- @columns start_ns, end_ns
CREATE TABLE fsdp_ranges AS
WITH _parsed AS (
    SELECT
        run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns,
        regexp_extract(
            name, '^FSDP::(\w+)(?: for .*?)?(?: \((.*?)\))?(?: \[pg=\d+\])?$', ['what', 'module']
        ) AS fsdp2,
        regexp_extract(name, '^FullyShardedDataParallel\.(_\w+)$', 1) AS fsdp1
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
    run_id, rank, tid, k.what, CASE WHEN fsdp = 2 THEN coalesce(nullif(fsdp2.module, ''), '(root)') END AS module,
    pass, fsdp, start_ns, end_ns
FROM _parsed s JOIN _kinds k ON k.name = CASE WHEN fsdp = 2 THEN fsdp2.what ELSE fsdp1 END;

-- @view fsdp_passes  a row is a forward pass of FSDP1: from its outermost forward to the next one.
-- @columns run_id, rank
-- @column turn index              Number of the pass.
-- @columns start_ns
CREATE VIEW fsdp_passes AS
WITH _forwards AS (
    SELECT run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns
    FROM ranges
    WHERE origin IN ('record_function', 'nvtx') AND name = 'FullyShardedDataParallel.forward' AND dur_ns IS NOT NULL
),
_outermost AS (
    SELECT * FROM _forwards QUALIFY coalesce(end_ns > previous_end((run_id, rank, tid), start_ns, end_ns), true)
)
SELECT run_id, rank, row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns) AS turn, start_ns FROM _outermost;

-- @view fsdp_launched  a row is a kernel of a collective that FSDP launched: an all_gather in a gather range, a
--   reduce_scatter or all_reduce in a reduce range.
-- @column * of collective_kernels
-- @column status text             Status of its call.
-- @column wait_ns ns              Matched calls: time until the last rank of its call started.
-- @column tid id                  Thread of its launch call.
-- @column launch_ns ns            Start of its launch call.
-- @column fsdp index              1 or 2.
-- @column module text             FSDP2's name of the module; NULL for FSDP1.
-- @column pass text               forward or backward; NULL if not known.
-- @column range_ns ns             Start of the range.
CREATE VIEW fsdp_launched AS
WITH _known AS (
    SELECT DISTINCT run_id, rank FROM fsdp_ranges
),
_kernels AS (
    SELECT
        c.* EXCLUDE (ranks, last_start_ns, first_end_ns, buffered, excluded_ns, last), l.tid, l.launch_ns,
        CASE WHEN c.collective = 'all_gather' THEN 'gather' ELSE 'reduce' END AS what
    FROM matched_collectives('collective_kernels') c
    JOIN _known USING (run_id, rank)
    JOIN (
        SELECT DISTINCT run_id, rank, correlation_id, call_tid AS tid, call_start_ns AS launch_ns FROM comm_kernels
    ) l USING (run_id, rank, correlation_id)
    WHERE c.collective IN ('all_gather', 'reduce_scatter', 'all_reduce') AND l.launch_ns IS NOT NULL
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

-- @view fsdp_uses  a row is the first use of gathered parameters: the first GPU work that FSDP2 launches to copy them
--   out, or that FSDP1 launches after its prefetch.
-- @columns run_id, rank
-- @column module text             FSDP2's name of the module; NULL for FSDP1.
-- @column pass text               forward or backward (FSDP1).
-- @column range_ns ns             Start of its range.
-- @column needed_ns ns            Earliest possible start: its launch call has begun and the previous work on its
--                                 stream has ended. NULL if the use was not recorded.
-- @column used_ns ns              Its start.
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
        arg_min(coalesce(w.previous_end_ns, f.launch_ns), w.start_ns) AS before_ns
    FROM intervals_with_previous_end('_on_streams') w
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

-- @table fsdp_kernels  a row is a kernel of a collective that FSDP launched, with its module and the time at which it
--   is needed.
-- Modules of FSDP1 are numbered by order: a pass gathers as many as it uses, and the backward pass uses and reduces
-- them in reverse order. If the numbers differ, the module is not known.
-- @column * of fsdp_launched
-- @column by_order bool           Whether the module is inferred.
-- @column needed_ns ns            All_gathers: earliest possible start of the first use, on the rank's clock.
-- @column used_ns ns              Start of that use.
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

-- @view late_unshards  a row is an interval in which the first use of a module waits for its all_gather, without
--   concurrent compute and without waiting for other ranks.
-- It waits from the moment of need to the end of the all_gather, or to the start of the use if that is earlier.
-- @columns track
-- @column module text             Module; NULL if not known.
-- @column pass text               forward or backward.
-- @columns start_ns, end_ns
CREATE VIEW late_unshards AS
WITH _stalls AS (
    SELECT
        t.track, k.call, k.module, k.pass, needed_ns AS start_ns, least(own_start_ns + dur_ns, used_ns) AS end_ns
    FROM fsdp_kernels k
    JOIN gpu_tracks t ON t.run_id = k.run_id AND t.rank = k.rank AND t.device IS NOT DISTINCT FROM k.device
    WHERE needed_ns < least(own_start_ns + dur_ns, used_ns)
)
SELECT e.track, s.module, s.pass, greatest(e.start_ns, s.start_ns) AS start_ns, least(e.end_ns, s.end_ns) AS end_ns
FROM exposed_comm e JOIN _stalls s ON s.track = e.track AND s.call = e.owner.call
WHERE e.owner.part <> 'waiting' AND e.start_ns < s.end_ns AND s.start_ns < e.end_ns;
