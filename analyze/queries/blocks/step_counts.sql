-- How many training steps each rank holds, as counted: the step ranges of its recording, else the profiled steps that
-- the collector timed, else (under Nsight Compute, which has neither) those that the collector's own training loop ran
-- to its end. No row for a rank of which none is known: of another program, `runs.steps` is what was counted, or NULL.
-- @use step_ranges
-- @view step_counts  a row is a rank of which they are known.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column steps count           Training steps.
CREATE VIEW step_counts AS
WITH _recorded AS (
    SELECT run_id, rank, count(*) AS steps FROM step_ranges GROUP BY run_id, rank
),
_timed AS (
    SELECT run_id, rank, count(*) AS steps FROM step_metrics WHERE NOT coalesce(warmup, false) GROUP BY run_id, rank
),
_looped AS (
    SELECT run_id, rank, steps::BIGINT AS steps FROM run_groups WHERE model IS NOT NULL AND status = 'done'
),
_counted AS (
    SELECT run_id, rank, run_group, coalesce(r.steps, t.steps, l.steps) AS counted
    FROM run_groups g
    LEFT JOIN _recorded r USING (run_id, rank)
    LEFT JOIN _timed t USING (run_id, rank)
    LEFT JOIN _looped l USING (run_id, rank)
)
SELECT run_id, rank, run_group, counted AS steps FROM _counted WHERE counted IS NOT NULL;
