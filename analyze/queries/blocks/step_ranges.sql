-- The training steps of each rank.
-- @table step_ranges  a row is the range of a step on the CPU.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column step index            The collector's number where as many were recorded as it timed (all of them, or the
--                               profiled ones), else the profiler's, else it counts from 0.
-- @column next_ns ns            Start of the step that follows; NULL for the last.
-- @column turn index            Its place among the steps of the rank, from 0.
-- @column metrics_step index    The step in step_metrics; NULL if not known.
CREATE TABLE step_ranges AS
WITH _recorded AS (
    SELECT *, start_ns + dur_ns AS end_ns, count(*) OVER (PARTITION BY run_id, rank) AS steps FROM recorded_steps
),
_timed AS (
    SELECT *, bool_or(coalesce(warmup, false)) OVER (PARTITION BY run_id, rank) AS warmed FROM step_metrics
),
_numbered AS (
    SELECT
        run_id, rank, step, row_number() OVER (PARTITION BY run_id, rank ORDER BY step) - 1 AS turn,
        count(*) OVER (PARTITION BY run_id, rank) AS steps
    FROM _timed
    WHERE NOT coalesce(warmup, false)
    UNION ALL
    SELECT
        run_id, rank, step, row_number() OVER (PARTITION BY run_id, rank ORDER BY step) - 1,
        count(*) OVER (PARTITION BY run_id, rank)
    FROM _timed
    WHERE warmed
)
SELECT
    run_id, rank, r.run_group, start_ns, end_ns, coalesce(n.step, number, turn)::INTEGER AS step, next_ns,
    turn, coalesce(n.step, number) AS metrics_step
FROM _recorded r LEFT JOIN _numbered n USING (run_id, rank, turn, steps);

-- @table step_windows  a row is a step as every query means it.
-- The window from the start of its range to the start of the next. The last one ends with its range, or with the last
-- GPU work launched inside it if that is later.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column step index            Step number.
-- @column metrics_step index    The step in step_metrics; NULL if not known.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column ends_on_gpu bool      Whether it ends with GPU work, not with its range.
CREATE TABLE step_windows AS
WITH _last AS (
    SELECT run_id, rank, start_ns, end_ns FROM step_ranges WHERE next_ns IS NULL
),
_tails AS (
    SELECT s.run_id, s.rank, max(w.start_ns + w.dur_ns) AS last_ns
    FROM _last s
    JOIN gpu_work w
        ON w.run_id = s.run_id AND w.rank = s.rank AND w.call_start_ns >= s.start_ns AND w.call_start_ns < s.end_ns
    GROUP BY s.run_id, s.rank
)
SELECT
    run_id, rank, s.run_group, step, metrics_step, start_ns,
    coalesce(next_ns, greatest(end_ns, coalesce(last_ns, end_ns))) AS end_ns,
    next_ns IS NULL AND coalesce(last_ns > end_ns, false) AS ends_on_gpu
FROM step_ranges s LEFT JOIN _tails USING (run_id, rank);
