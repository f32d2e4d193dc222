-- How evenly is the work spread over the ranks?
--
-- Each measure is taken per rank and device over the whole recording, as in `breakdown` and `overlap`; `step` is the
-- mean length of a training step, as in `breakdown window=step`. Imbalance is how much longer the longest is than the
-- mean: the share of time for which the other ranks are idle if all wait for the slowest.
-- @param metric all|compute|comm|exposed_comm|memcpy|busy|idle|span|step = all   Only this measure.
-- @column run_id id               The run.
-- @column metric text             compute, comm (union of communication kernels), exposed_comm, memcpy (union of
--                                 memcpys and memsets), busy, idle, span or step.
-- @column ranks count             Ranks (devices, if a process drives several).
-- @column min_ns ns               Smallest.
-- @column median_ns ns            Median.
-- @column max_ns ns               Largest.
-- @column avg_ns ns               Mean.
-- @column imbalance_pct %         100 * (largest / mean - 1).
-- @column min_rank index          Rank of the smallest.
-- @column max_rank index          Rank of the largest.
-- @column max_device index        Device of the largest.
-- @column ranks_without text      Ranks without this measure: no GPU work, or for `step` no steps; empty for none.
-- @main run_id, metric, min_ns, avg_ns, max_ns, imbalance_pct, max_rank, ranks_without
-- @order run_id, metric
-- @use gpu_timeline, steps
-- @needs work on GPUs or training steps
-- @pass gpu
-- @plot bars y=metric x=imbalance_pct
-- @drill max_rank breakdown window=step rank={max_rank}
-- @drill min_rank breakdown window=step rank={min_rank}
WITH lengths AS (
    SELECT
        run_id, rank, device, compute_ns, copy_ns, busy_ns, comm_ns, kernel_ns - compute_ns AS exposed_comm_ns,
        span_ns
    FROM gpu_lengths_span JOIN gpu_tracks ON track = window_id
),
steps AS (
    SELECT run_id, rank, avg(end_ns - start_ns) AS step_ns FROM step_windows GROUP BY run_id, rank
),
measured AS (
    SELECT run_group, run_id, rank, device, unnest([
        {'metric': 'compute', 'ns': compute_ns::DOUBLE}, {'metric': 'comm', 'ns': comm_ns},
        {'metric': 'exposed_comm', 'ns': exposed_comm_ns},
        {'metric': 'memcpy', 'ns': copy_ns}, {'metric': 'busy', 'ns': busy_ns},
        {'metric': 'idle', 'ns': span_ns - busy_ns},
        {'metric': 'span', 'ns': span_ns}, {'metric': 'step', 'ns': step_ns}
    ], recursive := true)
    FROM run_groups LEFT JOIN lengths USING (run_id, rank) LEFT JOIN steps USING (run_id, rank)
)
SELECT
    run_group, run_id, metric, count(ns) AS ranks, min(ns) AS min_ns, median(ns) AS median_ns, max(ns) AS max_ns,
    avg(ns) AS avg_ns,
    CASE WHEN avg(ns) > 0 THEN 100 * (max(ns) / avg(ns) - 1) END AS imbalance_pct,
    arg_min(rank, (ns, rank)) FILTER (ns IS NOT NULL) AS min_rank,
    arg_max(rank, (ns, -rank)) FILTER (ns IS NOT NULL) AS max_rank,
    arg_max_null(device, (ns, -rank, -device)) FILTER (ns IS NOT NULL) AS max_device,
    array_to_string(list(DISTINCT rank ORDER BY rank) FILTER (ns IS NULL), ', ') AS ranks_without
FROM measured
WHERE '{metric}' IN ('all', metric)
GROUP BY run_group, run_id, metric
HAVING count(ns) > 0
