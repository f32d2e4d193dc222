-- Which rank do the others wait for, and how long?
--
-- For each call of a collective over two or more ranks: a rank's wait is from its own start to the latest start, so the
-- last one waits 0, and its margin is how much earlier the call could have begun without it (latest start - the one
-- before). Ranks that start last together are each counted as last. Starts are taken on the profiler's clock, which the
-- ranks of a node share; with align=ends, each rank's clock is first shifted by the median of what it ends later than
-- the mean of the ranks, over the collectives that no rank can leave before all have come (not broadcast, reduce or
-- send_recv).
-- @use arithmetic, collective_calls
-- @needs collectives that several ranks of a run took part in
-- @param align none|ends = none   Whether the clocks of the ranks are shifted, for runs over several nodes.
-- @param collective text = ''     Only this collective; all if empty.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column calls count             Calls that it took part in.
-- @column wait_ns ns              Time it waited for the last one, summed.
-- @column times_last count        Calls in which it was the last.
-- @column last_pct %              Share of its calls.
-- @column margin_ns ns            By how much it was the last, summed.
-- @column avg_wait_ns ns          Mean wait.
-- @column max_wait_ns ns          Longest wait.
-- @column shift_ns ns             What align=ends took off its clock; 0 without.
-- @order run_id, rank, device
WITH calls AS (
    SELECT
        *, start_ns + dur_ns - min(start_ns) OVER (PARTITION BY call) AS end_ns,
        count(*) OVER (PARTITION BY call) AS ranks
    FROM collective_kernels
    WHERE $collective IN ('', collective)
),
members AS (
    SELECT *, end_ns - avg(end_ns) OVER (PARTITION BY call) AS late_end_ns FROM calls WHERE ranks > 1
),
shifts AS (
    SELECT
        run_id, rank,
        CASE WHEN '{align}' = 'ends' THEN round(median(late_end_ns) FILTER (
            collective IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier')
        ))::BIGINT END AS shift_ns
    FROM members
    GROUP BY run_id, rank
),
aligned AS (
    SELECT m.* EXCLUDE (start_ns), coalesce(shift_ns, 0) AS shift_ns, start_ns - coalesce(shift_ns, 0) AS start_ns
    FROM members m JOIN shifts USING (run_id, rank)
),
placed AS (
    SELECT
        *, max(start_ns) OVER (PARTITION BY call) - start_ns AS wait_ns,
        start_ns - max(start_ns) OVER (
            PARTITION BY call ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS margin_ns
    FROM aligned
)
SELECT
    run_group, run_id, rank, device, count(*) AS calls, sum(wait_ns)::BIGINT AS wait_ns,
    count(*) FILTER (wait_ns = 0) AS times_last, pct(count(*) FILTER (wait_ns = 0), count(*)) AS last_pct,
    coalesce(sum(margin_ns) FILTER (wait_ns = 0), 0)::BIGINT AS margin_ns,
    avg(wait_ns) AS avg_wait_ns, max(wait_ns) AS max_wait_ns, any_value(shift_ns) AS shift_ns
FROM placed
GROUP BY run_group, run_id, rank, device
