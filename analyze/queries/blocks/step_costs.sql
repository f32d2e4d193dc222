-- What recording cost: the mean time of a recorded step beside that of an undisturbed one, by the collector's clock.
-- Undisturbed are the steps that the same process ran before its profiler started or, where it timed none, the steps of
-- the same rank in a pass of the workload that no profiler recorded, as far as such a pass is selected.
-- @view step_costs  a row is a rank that a profiler recorded, and whose steps were timed.
-- @column run_id id                The run.
-- @column rank index               Process rank.
-- @column run_group index          Group of runs (--by); NULL without.
-- @column recorded_step_ns ns      Mean of the recorded steps.
-- @column undisturbed_step_ns ns   Mean of the undisturbed ones; NULL where there are none.
-- @column slowdown x               The one over the other; NULL likewise.
CREATE VIEW step_costs AS
WITH _means AS (
    SELECT
        run_id, rank, run_group,
        avg(round(step_s * 1e9)::BIGINT) FILTER (NOT coalesce(warmup, false)) AS recorded,
        avg(round(step_s * 1e9)::BIGINT) FILTER (undisturbed) AS undisturbed
    FROM step_metrics
    GROUP BY run_id, rank, run_group
),
_passes AS (
    SELECT m.*, r.workload_id, r.profiler = 'none' AS alone
    FROM _means m JOIN (SELECT run_id, workload_id, profiler FROM runs) r USING (run_id)
),
_compared AS (
    SELECT p.*, coalesce(p.undisturbed, n.recorded) AS beside
    FROM _passes p
    LEFT JOIN (SELECT workload_id, rank, any_value(recorded) AS recorded FROM _passes WHERE alone GROUP BY ALL) n
        ON n.workload_id = p.workload_id AND n.rank = p.rank AND NOT p.alone
)
SELECT
    run_id, rank, run_group, round(recorded)::BIGINT AS recorded_step_ns, round(beside)::BIGINT AS undisturbed_step_ns,
    recorded / nullif(beside, 0) AS slowdown
FROM _compared
WHERE recorded IS NOT NULL AND NOT alone;
