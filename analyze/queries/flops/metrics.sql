-- What are the values of a metric of Nsight Compute or nvprof, per kernel?
--
-- Metrics by name, in base units (ns, byte, hz, byte/s; percentages as they are). Sums make sense for counters only.
-- The findings of ncu's rules are rule:NAME, with the estimated speed-up in %. For nvprof logs, min, avg and max are
-- nvprof's own.
-- @param metric regex = '^(gpu__time_duration|dram__bytes_(read|write))\.sum$|^flop_count'   Regular expression for
--                                 metric names.
-- @param kernel regex = ''        Regular expression for kernel names; empty: all.
-- @param group kernel|short_name|family|launch = kernel   What a row is.
-- @column kernel text             Kernel, its short name, family, or launch.
-- @column metric text             Metric.
-- @column section text            Section of the report, if it says so.
-- @column unit text               Base unit.
-- @column launches count          Launches that have the metric.
-- @column min number              Smallest value.
-- @column avg number              Mean over the launches.
-- @column max number              Largest value.
-- @column sum number              Sum over the launches.
-- @column text text               Value that is not a number, if all launches have the same.
-- @main kernel, metric, unit, launches, avg, sum, text
-- @order kernel, metric, section, unit
-- @use ncu
-- @needs metrics of Nsight Compute or nvprof
WITH measured AS (
    SELECT
        run_id, rank, run_group, kernel, device, launch_id, metric, section, unit, 1 AS launches, value AS min,
        value AS max, value AS sum, text
    FROM ncu_metrics
    UNION ALL
    SELECT
        run_id, rank, run_group, kernel, device, NULL, metric, NULL, unit, invocations, min, max, avg * invocations,
        NULL
    FROM metric_summary
),
places AS (
    SELECT run_group, count(DISTINCT (run_id, rank)) > 1 AS several FROM measured GROUP BY run_group
),
labelled AS (
    SELECT
        a.*, launch_label('{group}', kernel, short_name, family, launch_id, a.run_id, rank, several) AS label,
        -- Launch ids are unique within a run and rank only.
        CASE WHEN '{group}' = 'launch' THEN (a.run_id, rank, launch_id, kernel, device) END AS launch_key
    FROM measured a
    JOIN kernel_names n ON n.run_id = a.run_id AND n.name = a.kernel
    JOIN places p ON p.run_group IS NOT DISTINCT FROM a.run_group
    WHERE regexp_matches(metric, $metric) AND ($kernel = '' OR regexp_matches(a.kernel, $kernel))
)
SELECT
    run_group, label AS kernel, metric, section, unit,
    coalesce(sum(launches) FILTER (sum IS NOT NULL OR text IS NOT NULL), 0)::BIGINT AS launches,
    min(min) AS min, sum(sum) / nullif(sum(launches) FILTER (sum IS NOT NULL), 0) AS avg, max(max) AS max,
    sum(sum) AS sum, CASE WHEN count(DISTINCT text) = 1 THEN any_value(text) END AS text
FROM labelled
GROUP BY run_group, label, launch_key, metric, section, unit
