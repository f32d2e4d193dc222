-- What Nsight Compute counted, launch by launch, under one name for each counter.

-- @view ncu_launches  a row is a launch.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column launch_id index       Launch, in order of execution.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column pid id                Process.
-- @column kernel text           Kernel.
-- @column device index          GPU.
-- @column stream id             CUDA stream.
-- @column grid text             Grid size, as printed.
-- @column block text            Block size, as printed.
-- @column dur_ns ns             Duration (the details page calls it Duration); of reports without one, cycles / rate.
-- @column clock_hz number       Clock of the SMs while it ran.
CREATE VIEW ncu_launches AS
SELECT
    run_id, rank, launch_id, any_value(run_group) AS run_group, any_value(pid) AS pid, any_value(kernel) AS kernel,
    any_value(device) AS device, any_value(stream) AS stream, any_value(grid) AS grid, any_value(block) AS block,
    try_cast(round(coalesce(
        max(value) FILTER (metric = 'gpu__time_duration.sum' AND unit = 'ns'),
        max(value) FILTER (metric = 'Duration' AND unit = 'ns'),
        1e9 * max(value) FILTER (metric = 'sm__cycles_elapsed.avg')
            / nullif(max(value) FILTER (metric = 'sm__cycles_elapsed.avg.per_second' AND unit = 'hz'), 0),
        1e9 * max(value) FILTER (metric = 'smsp__cycles_elapsed.avg')
            / nullif(max(value) FILTER (metric = 'smsp__cycles_elapsed.avg.per_second' AND unit = 'hz'), 0),
        1e9 * max(value) FILTER (metric = 'gpc__cycles_elapsed.avg')
            / nullif(max(value) FILTER (metric = 'gpc__cycles_elapsed.avg.per_second' AND unit = 'hz'), 0)
    )) AS BIGINT) AS dur_ns,
    coalesce(
        max(value) FILTER (metric = 'smsp__cycles_elapsed.avg.per_second'),
        max(value) FILTER (metric = 'sm__cycles_elapsed.avg.per_second')
    ) AS clock_hz
FROM ncu_metrics
GROUP BY run_id, rank, launch_id;

-- @view ncu_counts  a row is a counter of a launch.
-- Counters that sums are made of. A report holds X.sum, or a rate: X.sum.per_cycle_elapsed and X.sum.per_second, which
-- the full set has instead; a rate times the clock and the duration is the sum, as Nsight Compute's own roofline takes
-- it.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column launch_id index       Launch, in order of execution.
-- @column counter text          Counter, of the SM and its quarters alike as sm__.
-- @column count number          Its sum over the launch.
CREATE VIEW ncu_counts AS
WITH _named AS (
    SELECT
        run_id, rank, launch_id, value,
        regexp_extract(
            metric,
            '^((?:sm|smsp|dram|lts|l1tex)__(?:sass_thread_inst_executed_op_[dfh](?:add|mul|fma)_pred_on|bytes\w*'
            || '|t_bytes|t_sectors|ops_path_tensor_\w+|inst_executed_pipe_tensor\w*))'
            || '\.(sum|sum\.per_cycle_elapsed|sum\.per_second)$',
            ['counter', 'rollup']
        ) AS name
    FROM ncu_metrics
    WHERE value IS NOT NULL AND contains(metric, '.sum')
)
SELECT
    run_id, rank, launch_id,
    -- The same counter of the SM and of its quarters.
    regexp_replace(name.counter, '^sm(sp)?__', 'sm__') AS counter,
    -- Exact sums first.
    arg_min(
        CASE name.rollup
            WHEN 'sum' THEN n.value
            WHEN 'sum.per_cycle_elapsed' THEN n.value * l.clock_hz * l.dur_ns / 1e9
            ELSE n.value * l.dur_ns / 1e9
        END,
        CASE name.rollup WHEN 'sum' THEN 0 WHEN 'sum.per_cycle_elapsed' THEN 1 ELSE 2 END
    ) AS count
FROM _named n JOIN ncu_launches l USING (run_id, rank, launch_id)
WHERE name.counter <> ''
GROUP BY ALL;

-- @macro launch_label(grouping, kernel, short_name, family, launch_id, run_id, rank, several)  what a row of launches
-- is called; `several`: whether there is more than one run or rank to tell apart.
CREATE MACRO launch_label(grouping, kernel, short_name, family, launch_id, run_id, rank, several) AS CASE grouping
    WHEN 'kernel' THEN kernel
    WHEN 'short_name' THEN short_name
    WHEN 'family' THEN family
    WHEN 'launch' THEN concat_ws(
        ' ', launch_id, short_name, CASE WHEN several THEN concat('(', run_id, ' rank ', rank, ')') END
    )
    ELSE '(all)'
END;
