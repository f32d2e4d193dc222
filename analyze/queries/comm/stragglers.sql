-- Which rank do the others wait for, and how long?
--
-- For each matched call of a collective over two or more ranks (see `collectives`): a rank's wait is from its own start
-- to the latest start, so the last one waits 0, and at most as long as its kernel runs: the root of a broadcast may
-- leave before the others come. The last rank's margin is how much earlier the call could have begun without it (latest
-- start - the one before), at most the longest wait of the others. Ranks that start last together are each counted as
-- last. Kernels of other calls are counted and left out, as are sends and receives. Starts are taken on the profiler's
-- clock, which the ranks of a node share; with align=ends, each rank's clock is first shifted by the median of what it
-- ends later than the mean of the ranks, over the collectives that no rank can leave before all have come (not
-- broadcast, reduce, gather or scatter).
-- @param align none|ends = none   Whether the clocks of the ranks are shifted, for runs over several nodes.
-- @param collective text = ''     Only this collective; all if empty.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column calls count             Matched calls that it took part in.
-- @column wait_ns ns              Time it waited for the last one, summed.
-- @column times_last count        Calls in which it was the last.
-- @column last_pct %              Share of its calls.
-- @column margin_ns ns            By how much it was the last, summed.
-- @column avg_wait_ns ns          Mean wait.
-- @column max_wait_ns ns          Longest wait.
-- @column shift_ns ns             What align=ends took off its clock; 0 without.
-- @column unmatched count         Kernels of calls that are incomplete or unmatched: left out.
-- @column point_to_point count    Kernels of sends and receives: left out.
-- @main run_id, rank, device, calls, wait_ns, times_last, last_pct, margin_ns
-- @order run_id, rank, device
-- @use arithmetic, collective_calls
-- @needs communication kernels
-- @plot bars y=run_id,rank,device x=wait_ns top=64
-- @drill rank breakdown window=step rank={rank}
WITH calls AS (
    SELECT
        *, start_ns + dur_ns - min(start_ns) OVER (PARTITION BY call) AS end_ns,
        count(*) OVER (PARTITION BY call) AS found
    FROM collective_kernels
    WHERE $collective IN ('', collective) AND (members IS DISTINCT FROM 1 OR collective = 'send_recv')
),
late AS (
    SELECT *, end_ns - avg(end_ns) OVER (PARTITION BY call) AS late_end_ns FROM calls
),
shifts AS (
    SELECT
        run_id, rank,
        CASE WHEN '{align}' = 'ends' THEN round(median(late_end_ns) FILTER (
            found = members AND collective IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier')
        ))::BIGINT END AS shift_ns
    FROM late
    GROUP BY run_id, rank
),
aligned AS (
    SELECT c.* EXCLUDE (start_ns), coalesce(shift_ns, 0) AS shift_ns, start_ns - coalesce(shift_ns, 0) AS start_ns
    FROM calls c JOIN shifts USING (run_id, rank)
),
placed AS (
    SELECT
        *, status = 'matched' AND start_ns = last_start_ns AS last,
        start_ns - max(start_ns) OVER (
            PARTITION BY call ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW
        ) AS behind_ns,
        CASE
            WHEN last THEN least(behind_ns, max(wait_ns) OVER (PARTITION BY call))
            WHEN status = 'matched' THEN 0
        END AS margin_ns
    FROM judged_calls('aligned')
)
SELECT
    run_group, run_id, rank, device, count(wait_ns) AS calls, sum(wait_ns)::BIGINT AS wait_ns,
    count(*) FILTER (last) AS times_last, pct(count(*) FILTER (last), count(wait_ns)) AS last_pct,
    sum(margin_ns)::BIGINT AS margin_ns,
    avg(wait_ns) AS avg_wait_ns, max(wait_ns) AS max_wait_ns, any_value(shift_ns) AS shift_ns,
    count(*) FILTER (status IN ('incomplete', 'unmatched')) AS unmatched,
    count(*) FILTER (status = 'point_to_point') AS point_to_point
FROM placed
GROUP BY run_group, run_id, rank, device
