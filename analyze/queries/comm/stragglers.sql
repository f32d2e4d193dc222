-- Which rank do the others wait for, and how long?
--
-- For each matched call of a collective over two or more ranks (see `collectives`): the wait of a rank is from its own
-- start to the latest start, at most the duration of its kernel (the root of a broadcast may leave early). The last
-- rank waits 0. Its margin is how much earlier the call could have begun without it (latest start - second latest
-- start), at most the longest wait of the others. Ranks that start last together each count as last. A send and its
-- receive are a call of two ranks; a send that ended before its receive began did not wait. A rank that is late
-- because it waits for another one blocks others only while it does not wait. Kernels of unmatched calls, and sends and
-- receives without a known peer, are counted and left out. Waits before all ranks had begun to record are left out, and
-- so is the first call of a process group if it has more than 90 % of the waiting in five or more calls: no rank is
-- last in it. Starts are on the profiler's clock, which the ranks of a node share. If the clocks of nodes differ, each
-- rank's clock is shifted by the median of (end of its kernel - mean end over the ranks), over the collectives that no
-- rank can leave early (not broadcast, reduce, gather or scatter). align=auto shifts only if that brings the
-- ends together; align=ends always shifts.
-- @param align auto|ends|none = auto   Whether to shift the clocks of the ranks, for runs over several nodes.
-- @param collective text = ''     Only this collective; empty: all.
-- @param per none|dimension|group = none   Split the rows, besides by rank: by dimension of the parallelism (as in
--                                 `collectives`), or process group. --by accepts these, too.
-- @column run_id id               The run.
-- @column dimension text          With per=dimension or group: dp, fsdp, tp, pp, ep or cp; empty if not known.
-- @column process_group text      With per=group: the program's name for the group, else its own name, and its ranks.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column calls count             Matched calls of this rank.
-- @column wait_ns ns              Sum of its waits.
-- @column excluded_ns ns          Waits that are left out, because they are an artifact of the recording: before all
--                                 ranks had begun to record, or in a cold first call.
-- @column times_last count        Calls in which it was last. For a send that needs no receiver, no rank is last.
-- @column last_pct %              times_last / calls.
-- @column margin_ns ns            Sum of its margins.
-- @column blocked_ns ns           Time in which others waited for it and it did not wait itself.
-- @column avg_wait_ns ns          Mean wait.
-- @column max_wait_ns ns          Longest wait.
-- @column shift_ns ns             Shift subtracted from its clock; 0 if clocks agree.
-- @column residual_ns ns          Median difference between its ends of collectives and the mean over ranks, after the
--                                 shift; empty without collectives that no rank can leave early.
-- @column unmatched count         Kernels of calls that are incomplete, unmatched or of an unknown group: left out.
-- @column point_to_point count    Sends and receives without a known peer: left out.
-- @main run_id, dimension, process_group, rank, device, calls, wait_ns, times_last, last_pct, blocked_ns
-- @order run_id, dimension, process_group, rank, device
-- @use arithmetic, collective_kinds, collectives, intervals
-- @needs communication kernels
-- @pass gpu
-- @disturbed waits and the slowest rank
-- @plot bars y=run_id,rank,device x=wait_ns top=64 per=step
-- @drill rank breakdown window=step rank={rank}
WITH calls AS (
    SELECT
        *, own_start_ns + dur_ns - min(own_start_ns) OVER (PARTITION BY call) AS end_ns,
        count(*) OVER (PARTITION BY call) AS found
    FROM collective_kernels
    WHERE $collective IN ('', collective) AND (members IS DISTINCT FROM 1 OR collective = 'send_recv')
),
late AS (
    SELECT
        *, CASE
            WHEN found = members AND group_known AND ends_together(collective) THEN end_ns - avg(end_ns) OVER calls
        END AS late_ns
    FROM calls
    WINDOW calls AS (PARTITION BY call)
),
offsets AS (
    SELECT run_id, rank, median(late_ns) AS off_ns FROM late GROUP BY run_id, rank
),
shifts AS (
    SELECT
        run_id, rank,
        CASE '{align}'
            WHEN 'auto' THEN any_value(shift_ns)
            WHEN 'ends' THEN coalesce(round(any_value(off_ns)), 0)::BIGINT
            ELSE 0
        END AS shift_ns,
        CASE '{align}'
            WHEN 'auto' THEN any_value(residual_ns)
            WHEN 'ends' THEN round(median(abs(late_ns - off_ns)))::BIGINT
            ELSE round(median(abs(late_ns)))::BIGINT
        END AS residual_ns
    FROM late JOIN offsets USING (run_id, rank)
    GROUP BY run_id, rank
),
aligned AS (
    SELECT c.* REPLACE (own_start_ns - s.shift_ns AS start_ns, s.shift_ns AS shift_ns, s.residual_ns AS residual_ns)
    FROM calls c JOIN shifts s USING (run_id, rank)
),
placed AS (
    SELECT
        *, CASE WHEN '{per}' <> 'none' THEN dimension END AS row_dimension,
        CASE WHEN '{per}' = 'group' THEN process_group END AS row_group,
        start_ns - max(start_ns) OVER (
            PARTITION BY call ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW
        ) AS behind_ns,
        CASE
            WHEN last THEN least(behind_ns, max(wait_ns) OVER (PARTITION BY call))
            WHEN status = 'matched' THEN 0
        END AS margin_ns
    FROM matched_collectives('aligned')
),
waits AS (
    SELECT
        {'run_id': run_id, 'rank': rank, 'device': device} AS track, call, last, wait_ns, row_dimension, row_group,
        start_ns + excluded_ns AS start_ns, start_ns + excluded_ns + wait_ns AS end_ns
    FROM placed
    WHERE status = 'matched' AND ranks > 1
),
-- Waits for each last rank, per group of rows.
held_up AS (
    SELECT {'of': l.track, 'dimension': l.row_dimension, 'group': l.row_group} AS track, w.start_ns, w.end_ns
    FROM waits l JOIN waits w USING (call)
    WHERE l.last AND w.wait_ns > 0
),
own AS (
    SELECT h.track, w.start_ns, w.end_ns
    FROM (SELECT DISTINCT track FROM held_up) h JOIN waits w ON w.track = h.track.of
    WHERE w.wait_ns > 0
),
blocked AS (
    SELECT track, sum(end_ns - start_ns)::BIGINT AS blocked_ns
    FROM intervals_subtract('held_up', 'own')
    GROUP BY track
),
per_rank AS (
    SELECT
        run_group, run_id, row_dimension AS dimension, row_group AS process_group, rank, device,
        count(wait_ns) AS calls, sum(wait_ns)::BIGINT AS wait_ns, sum(excluded_ns)::BIGINT AS excluded_ns,
        count(*) FILTER (last) AS times_last, pct(count(*) FILTER (last), count(wait_ns)) AS last_pct,
        sum(margin_ns)::BIGINT AS margin_ns,
        avg(wait_ns) AS avg_wait_ns, max(wait_ns) AS max_wait_ns, any_value(shift_ns) AS shift_ns,
        any_value(residual_ns) AS residual_ns,
        count(*) FILTER (status NOT IN ('matched', 'point_to_point')) AS unmatched,
        count(*) FILTER (status = 'point_to_point') AS point_to_point
    FROM placed
    GROUP BY run_group, run_id, row_dimension, row_group, rank, device
)
SELECT r.*, CASE WHEN calls > 0 THEN coalesce(blocked_ns, 0) END AS blocked_ns
FROM per_rank r
LEFT JOIN blocked b
    ON b.track.of.run_id = r.run_id AND b.track.of.rank = r.rank AND b.track.of.device IS NOT DISTINCT FROM r.device
    AND b.track.dimension IS NOT DISTINCT FROM r.dimension AND b.track.group IS NOT DISTINCT FROM r.process_group
