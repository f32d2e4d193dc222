-- How steady is a kernel over steps and ranks?
--
-- Launches of one kernel with the same grid and block are expected to do the same work in the same time. If their
-- durations vary but both spreads are near 1, the launches differ in something that the trace does not show (such as
-- the depth of a matrix product). A launch belongs to the step in which its launch call began (without a recorded call:
-- the kernel). Launches outside steps are left out of the spread over steps only. A spread is the mean duration on the
-- slowest rank (or in the slowest step) / that on the fastest; 1 is steady. A communication kernel also waits for other
-- ranks: see `stragglers`.
-- @param per kernel|rank|step = kernel   What a row is: a kernel, a kernel on a rank, or a kernel in a step of a rank.
-- @param kernel text = ''         Only kernels whose name contains this.
-- @param top int[0..1000000] = 20 Number of kernels, those with the most time, per group of runs.
-- @column name text               Short name of the kernel.
-- @column grid text               Grid size in blocks; empty if not known.
-- @column block text              Block size in threads; empty if not known.
-- @column run_id id               The run; empty for per=kernel.
-- @column rank index              Process rank; empty for per=kernel.
-- @column step index              With per=step: training step; empty for launches outside steps.
-- @column launches count          Launches.
-- @column total_ns ns             Sum of their durations.
-- @column avg_ns ns               Mean duration.
-- @column min_ns ns               Shortest.
-- @column median_ns ns            Median.
-- @column max_ns ns               Longest.
-- @column variation_pct %         Standard deviation / mean.
-- @column pace x                  Mean / mean of the kernel over all ranks and steps.
-- @column rank_spread x           Mean on the slowest rank / on the fastest; empty for one rank.
-- @column step_spread x           Mean in the slowest step / in the fastest; empty for one step or none.
-- @main name, rank, step, launches, total_ns, avg_ns, max_ns, variation_pct, rank_spread, step_spread
-- @order place, run_id, rank, step
-- @use arithmetic, launches, steps
-- @needs kernels
-- @pass gpu
WITH shapes AS MATERIALIZED (
    SELECT
        run_group, run_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, sum(dur_ns) AS ns,
        count(dur_ns) AS launches
    FROM kernels
    WHERE contains(name, $kernel)
    GROUP BY ALL
),
named AS (
    SELECT
        s.* EXCLUDE (name), s.name AS full_name, coalesce(n.short_name, s.name) AS name,
        concat_ws('x', grid_x, grid_y, grid_z) AS grid, concat_ws('x', block_x, block_y, block_z) AS block
    FROM shapes s LEFT JOIN kernel_names n USING (run_id, name)
),
most AS (
    SELECT
        run_group, name, grid, block, sum(ns)::DOUBLE / nullif(sum(launches), 0) AS mean_ns,
        row_number() OVER (PARTITION BY run_group ORDER BY sum(ns) DESC, name, grid, block) AS place
    FROM named
    GROUP BY run_group, name, grid, block
    QUALIFY place <= $top
),
placed AS MATERIALIZED (
    SELECT m.place, m.mean_ns, n.*
    FROM named n JOIN most m
        ON m.run_group IS NOT DISTINCT FROM n.run_group AND m.name = n.name AND m.grid = n.grid AND m.block = n.block
),
-- Launch calls are needed for these kernels only.
chosen AS MATERIALIZED (
    SELECT
        p.place, p.mean_ns, p.name, p.grid, p.block, k.run_group, k.run_id, k.rank, k.correlation_id, k.start_ns,
        k.dur_ns
    FROM kernels k JOIN placed p
        ON p.run_group IS NOT DISTINCT FROM k.run_group AND p.run_id = k.run_id AND p.full_name = k.name
        AND p.grid_x IS NOT DISTINCT FROM k.grid_x AND p.grid_y IS NOT DISTINCT FROM k.grid_y
        AND p.grid_z IS NOT DISTINCT FROM k.grid_z AND p.block_x IS NOT DISTINCT FROM k.block_x
        AND p.block_y IS NOT DISTINCT FROM k.block_y AND p.block_z IS NOT DISTINCT FROM k.block_z
),
-- In a GPU-only block, the twin says the step of the launch.
twinned AS (
    SELECT t.run_id, t.rank, t.correlation_id, t.start_ns, any_value(s.start_ns) AS step_ns
    FROM twins t JOIN step_ranges s USING (run_id, rank, turn)
    GROUP BY ALL
),
launched AS (
    SELECT a.* EXCLUDE (start_ns), coalesce(l.start_ns, t.step_ns, a.start_ns) AS at_ns
    FROM chosen a
    LEFT JOIN launch_calls('chosen') l USING (run_id, rank, correlation_id)
    LEFT JOIN twinned t
        ON t.run_id = a.run_id AND t.rank = a.rank AND t.correlation_id = a.correlation_id AND t.start_ns = a.start_ns
),
stepped AS (
    SELECT l.*, CASE WHEN l.at_ns < s.end_ns THEN s.step END AS step
    FROM launched l
    ASOF LEFT JOIN step_windows s ON s.run_id = l.run_id AND s.rank = l.rank AND l.at_ns >= s.start_ns
),
means AS (
    SELECT
        place, run_group, run_id, rank, step, dur_ns, mean_ns, name, grid, block,
        CASE WHEN '{per}' <> 'kernel' THEN run_id END AS of_run,
        CASE WHEN '{per}' <> 'kernel' THEN rank END AS of_rank,
        CASE WHEN '{per}' = 'step' THEN step END AS of_step
    FROM stepped
),
of_ranks AS (
    SELECT run_group, place, of_run, of_rank, of_step, avg(dur_ns) AS ns
    FROM means
    GROUP BY run_group, place, of_run, of_rank, of_step, run_id, rank
),
of_steps AS (
    SELECT run_group, place, of_run, of_rank, of_step, avg(dur_ns) AS ns
    FROM means
    WHERE step IS NOT NULL
    GROUP BY run_group, place, of_run, of_rank, of_step, run_id, step
),
by_rank AS (
    SELECT * EXCLUDE (ns), max(ns) / nullif(min(ns), 0) AS spread FROM of_ranks GROUP BY ALL HAVING count(*) > 1
),
by_step AS (
    SELECT * EXCLUDE (ns), max(ns) / nullif(min(ns), 0) AS spread FROM of_steps GROUP BY ALL HAVING count(*) > 1
),
rows_of AS (
    SELECT
        run_group, place, of_run, of_rank, of_step, any_value(name) AS name, any_value(grid) AS grid,
        any_value(block) AS block, count(*) AS launches, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS avg_ns,
        min(dur_ns) AS min_ns, median(dur_ns)::DOUBLE AS median_ns, max(dur_ns) AS max_ns,
        variation_pct(dur_ns) AS variation_pct, avg(dur_ns) / nullif(any_value(mean_ns), 0) AS pace
    FROM means
    GROUP BY run_group, place, of_run, of_rank, of_step
)
SELECT
    r.run_group, r.name, nullif(r.grid, '') AS grid, nullif(r.block, '') AS block, r.of_run AS run_id,
    r.of_rank AS rank, r.of_step AS step, launches, total_ns, avg_ns, min_ns, median_ns, max_ns, variation_pct, pace,
    a.spread AS rank_spread, b.spread AS step_spread, r.place
FROM rows_of r
LEFT JOIN by_rank a ON (a.run_group, a.place, a.of_run, a.of_rank, a.of_step)
    IS NOT DISTINCT FROM (r.run_group, r.place, r.of_run, r.of_rank, r.of_step)
LEFT JOIN by_step b ON (b.run_group, b.place, b.of_run, b.of_rank, b.of_step)
    IS NOT DISTINCT FROM (r.run_group, r.place, r.of_run, r.of_rank, r.of_step)
