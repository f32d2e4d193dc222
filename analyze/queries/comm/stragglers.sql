-- Which rank do the others wait for, and how long?
--
-- For each matched call of a collective over two or more ranks (see `collectives`): a rank's wait is from its own start
-- to the latest start, so the last one waits 0, and at most as long as its kernel runs: the root of a broadcast may
-- leave before the others come. The last rank's margin is how much earlier the call could have begun without it (latest
-- start - the one before), at most the longest wait of the others. Ranks that start last together are each counted as
-- last. A send and its receive are a call of two; a send that ended before the receive began waited for nobody. A rank
-- that comes last because it waits itself passes the blame on: it blocks others only while it waits for no one. Kernels
-- of other calls are counted and left out, as are sends and receives whose peer is not known. Starts are taken
-- on the profiler's clock, which the ranks of a node share. Where the clocks of nodes differ, each rank's is shifted by
-- the median of what it ends later than the mean of the ranks, over the collectives that no rank can leave before all
-- have come (not broadcast, reduce, gather or scatter): if that brings their ends together, or always with align=ends.
-- @param align auto|ends|none = auto   Whether the clocks of the ranks are shifted, for runs over several nodes.
-- @param collective text = ''     Only this collective; all if empty.
-- @param per none|dimension|group = none   What rows are told apart by, beside the rank: the dimension of the
--                                 parallelism (as in `collectives`), or the process group. --by takes these, too.
-- @column run_id id               The run.
-- @column dimension text          With per=dimension or group: dp, fsdp, tp, pp, ep or cp; empty if not known.
-- @column process_group text      With per=group: what the program calls the group, else its name, and its ranks.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column calls count             Matched calls that it took part in.
-- @column wait_ns ns              Time it waited for the last one, summed.
-- @column times_last count        Calls in which it was the last; of a send into a buffer, no one is.
-- @column last_pct %              Share of its calls.
-- @column margin_ns ns            By how much it was the last, summed.
-- @column blocked_ns ns           Time in which others waited for it, and it for no one.
-- @column avg_wait_ns ns          Mean wait.
-- @column max_wait_ns ns          Longest wait.
-- @column shift_ns ns             What was taken off its clock; 0 where clocks agree.
-- @column residual_ns ns          By how much its ends of collectives differ from the mean's after that (median); empty
--                                 without collectives that no rank can leave early.
-- @column unmatched count         Kernels of calls that are incomplete, unmatched or of a group that is not known:
--                                 left out.
-- @column point_to_point count    Kernels of sends and receives whose peer is not known: left out.
-- @main run_id, dimension, process_group, rank, device, calls, wait_ns, times_last, last_pct, blocked_ns
-- @order run_id, dimension, process_group, rank, device
-- @use arithmetic, collective_calls, collective_kinds, intervals
-- @needs communication kernels
-- @plot bars y=run_id,rank,device x=wait_ns top=64
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
        *, CASE WHEN '{per}' <> 'none' THEN dimension END AS shown_dimension,
        CASE WHEN '{per}' = 'group' THEN process_group END AS shown_group,
        start_ns - max(start_ns) OVER (
            PARTITION BY call ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW
        ) AS behind_ns,
        CASE
            WHEN last THEN least(behind_ns, max(wait_ns) OVER (PARTITION BY call))
            WHEN status = 'matched' THEN 0
        END AS margin_ns
    FROM judged_calls('aligned')
),
waits AS (
    SELECT
        {'run_id': run_id, 'rank': rank, 'device': device} AS track, call, last, wait_ns, shown_dimension, shown_group,
        start_ns, start_ns + wait_ns AS end_ns
    FROM placed
    WHERE status = 'matched' AND ranks > 1
),
-- On the tracks of those who are last, for each thing that rows are told apart by.
held_up AS (
    SELECT {'of': l.track, 'dimension': l.shown_dimension, 'group': l.shown_group} AS track, w.start_ns, w.end_ns
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
    FROM intervals_subtraction('held_up', 'own')
    GROUP BY track
),
per_rank AS (
    SELECT
        run_group, run_id, shown_dimension AS dimension, shown_group AS process_group, rank, device,
        count(wait_ns) AS calls, sum(wait_ns)::BIGINT AS wait_ns,
        count(*) FILTER (last) AS times_last, pct(count(*) FILTER (last), count(wait_ns)) AS last_pct,
        sum(margin_ns)::BIGINT AS margin_ns,
        avg(wait_ns) AS avg_wait_ns, max(wait_ns) AS max_wait_ns, any_value(shift_ns) AS shift_ns,
        any_value(residual_ns) AS residual_ns,
        count(*) FILTER (status NOT IN ('matched', 'point_to_point')) AS unmatched,
        count(*) FILTER (status = 'point_to_point') AS point_to_point
    FROM placed
    GROUP BY run_group, run_id, shown_dimension, shown_group, rank, device
)
SELECT r.*, CASE WHEN calls > 0 THEN coalesce(blocked_ns, 0) END AS blocked_ns
FROM per_rank r
LEFT JOIN blocked b
    ON b.track.of.run_id = r.run_id AND b.track.of.rank = r.rank AND b.track.of.device IS NOT DISTINCT FROM r.device
    AND b.track.dimension IS NOT DISTINCT FROM r.dimension AND b.track.group IS NOT DISTINCT FROM r.process_group
