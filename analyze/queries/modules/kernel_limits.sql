-- What limits each kernel that Nsight Compute measured: memory, arithmetic, occupancy, the grid, or access to memory.
-- @use ncu, peaks

-- @view launch_limits  a row is a profiled launch with a known duration.
-- @columns run_group, run_id, rank, device
-- @column launch_id index         Launch, in order of execution.
-- @column kernel text             Short name of the kernel.
-- @columns dur_ns
-- @column memory_pct %            Bandwidth of device memory / its peak; NULL if not measured.
-- @column compute_pct %           Operations per second / the peak of their unit; NULL if not measured.
-- @column occupancy_pct %         Theoretical occupancy: warps of an SM / most of an SM.
-- @column limiter text            What limits the blocks on an SM: registers, shared memory, warps, blocks, barriers.
-- @column waves number            Blocks of the grid / blocks that run at once.
-- @column used_pct %              Bytes that are used of those read from or written to global memory: 100 if access is
--                                 coalesced.
CREATE VIEW launch_limits AS
WITH _rates AS (
    SELECT run_id, map_from_entries(list((kind || ' ' || roof, rate))) AS rate FROM roofs GROUP BY run_id
),
_measured AS (
    SELECT
        run_id, rank, launch_id,
        max(value) FILTER (unit = '%' AND (
            regexp_matches(metric, '^(gpu__dram|dram__)_?throughput\.avg\.pct_of_peak_sustained_elapsed$')
            OR metric = 'DRAM Throughput'
        )) AS memory_pct,
        max(value) FILTER (unit = '%' AND metric IN (
            'sm__throughput.avg.pct_of_peak_sustained_elapsed', 'Compute (SM) Throughput'
        )) AS compute_pct,
        max(value) FILTER (
            metric IN ('sm__maximum_warps_per_active_cycle_pct', 'Theoretical Occupancy')
        ) AS occupancy_pct,
        max(value) FILTER (metric IN ('launch__waves_per_multiprocessor', 'Waves Per SM')) AS waves,
        min(value) FILTER (
            regexp_matches(metric, '^smsp__sass_average_data_bytes_per_sector_mem_global_op_(ld|st)\.pct$')
            AND value > 0
        ) AS used_pct,
        arg_min(
            CASE
                WHEN regexp_matches(metric, 'registers|Registers') THEN 'registers'
                WHEN regexp_matches(metric, 'shared_mem|Shared') THEN 'shared memory'
                WHEN regexp_matches(metric, 'warps|Warps') THEN 'warps'
                WHEN regexp_matches(metric, 'barriers|Barriers') THEN 'barriers' ELSE 'blocks'
            END, (value, metric)
        ) FILTER (regexp_matches(metric, '^launch__occupancy_limit_|^Block Limit ')) AS limiter
    FROM ncu_metrics
    GROUP BY run_id, rank, launch_id
)
SELECT
    l.run_group, run_id, rank, l.device, launch_id, coalesce(n.short_name, l.kernel) AS kernel, l.dur_ns,
    coalesce(m.memory_pct, 100e9 * l.dram_bytes / l.dur_ns / r.rate['memory dram']) AS memory_pct,
    coalesce(m.compute_pct, 100e9 / l.dur_ns * greatest(
        l.fp32_flops / r.rate['compute fp32'], l.fp16_flops / r.rate['compute fp16'],
        l.fp64_flops / r.rate['compute fp64'], l.tensor_flops / r.rate['compute tensor_' || l.tensor_type]
    )) AS compute_pct,
    m.occupancy_pct, m.limiter, m.waves, m.used_pct
FROM launch_flops l
JOIN _measured m USING (run_id, rank, launch_id)
LEFT JOIN _rates r USING (run_id)
LEFT JOIN kernel_names n ON n.run_id = l.run_id AND n.name = l.kernel
WHERE l.dur_ns > 0;

-- @macro pct_text(value, of_what)  a share as text, or that it was not measured.
CREATE MACRO pct_text(value, of_what) AS CASE
    WHEN value IS NULL THEN 'not measured' ELSE printf('%.0f %%%s', value, of_what)
END;

-- @macro limit_sums(t)  launches of a run that one finding is about: a table of launch_limits with a column `gain_ns`.
-- @columns run_group, run_id
-- @column launches count          Launches.
-- @column ns ns                   Their durations.
-- @column gain_ns ns              What they could gain.
-- @column most row                The launch that could gain most.
-- @column most_text text          It in words.
CREATE MACRO limit_sums(t) AS TABLE
WITH _sums AS (
    SELECT
        run_group, run_id, count(*) AS launches, sum(dur_ns) AS ns, sum(gain_ns) AS gain_ns,
        arg_max(
            {
                'rank': rank, 'device': device, 'launch_id': launch_id, 'kernel': kernel, 'dur_ns': dur_ns,
                'memory_pct': memory_pct, 'compute_pct': compute_pct, 'occupancy_pct': occupancy_pct,
                'limiter': limiter, 'waves': waves, 'used_pct': used_pct
            },
            (gain_ns, -launch_id, -rank)
        ) AS most
    FROM query_table(t)
    GROUP BY run_group, run_id
)
SELECT
    *, printf('%s (launch %d, %.3f ms): memory %s, arithmetic %s', most.kernel, most.launch_id,
        most.dur_ns / 1e6, pct_text(most.memory_pct, ' of its peak'), pct_text(most.compute_pct, ''))
    || CASE WHEN most.occupancy_pct < 100 THEN printf('; occupancy %.0f %%, limited by %s', most.occupancy_pct,
        coalesce(most.limiter, 'an unknown resource')) ELSE '' END
    || CASE WHEN most.waves < 1 THEN printf('; the grid fills %.0f %% of the GPU', 100 * most.waves) ELSE '' END
    AS most_text
FROM _sums;
