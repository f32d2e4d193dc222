-- Where does the CPU's CUDA API time go?
--
-- Runtime and driver calls, summed over ranks and threads. The duration of a call includes the time for which its
-- thread waits.
-- @column name text               CUDA runtime or driver function.
-- @column calls count             Calls.
-- @column total_ns ns             Sum of durations.
-- @column avg_ns ns               Mean.
-- @column min_ns ns               Shortest.
-- @column max_ns ns               Longest.
-- @column api_time_pct %          Share of the time in all calls.
-- @main name, calls, total_ns, avg_ns, max_ns, api_time_pct
-- @order total_ns DESC, name
-- @use arithmetic
-- @needs CUDA API calls, or sums of CUDA API calls (nvprof)
-- @full CUDA calls
-- @plot bars y=name x=total_ns label=api_time_pct top=15 per=step,rank
-- @drill name calls kind=api name={name}
WITH sums AS (
    SELECT
        run_group, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, min(dur_ns) AS min_ns,
        max(dur_ns) AS max_ns
    FROM cuda_calls
    WHERE api <> 'sync'
    GROUP BY run_group, name
    UNION ALL
    SELECT run_group, name, calls, total_ns, min_ns, max_ns
    FROM api_summary ANTI JOIN cuda_calls USING (run_id, rank)
)
SELECT
    run_group, name, sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns,
    sum(total_ns)::DOUBLE / sum(calls) AS avg_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns,
    pct(sum(total_ns), sum(sum(total_ns)) OVER (PARTITION BY run_group)) AS api_time_pct
FROM sums
GROUP BY run_group, name
