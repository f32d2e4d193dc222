-- Counters of Nsight Compute per launch: FLOPs and bytes. For nvprof logs, the same per kernel.

-- @view ncu_launches  a row is a profiled launch.
-- @columns run_id, rank
-- @column launch_id index         Launch, in order of execution.
-- @columns run_group, pid
-- @column kernel text             Kernel.
-- @columns device, stream
-- @column grid text               Grid size, as printed.
-- @column block text              Block size, as printed.
-- @column dur_ns ns               Duration (Duration on the details page); for reports without one, cycles / rate.
-- @column clock_hz number         Clock of the SMs while it ran.
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

-- @view ncu_counts  a row is a counter of a launch: its sum, exact or from a rate.
-- A report has X.sum, or the rates X.sum.per_cycle_elapsed and X.sum.per_second (full set). A rate x clock x duration
-- is the sum, as in Nsight Compute's own roofline.
-- @columns run_id, rank
-- @column launch_id index         Launch, in order of execution.
-- @column counter text            Counter; those of SM quarters (smsp__) as sm__.
-- @column count number            Its sum over the launch.
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
    -- Counters of an SM and of its quarters are the same.
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

-- @macro launch_label(grouping, kernel, short_name, family, launch_id, run_id, rank, several)  the label of a row of
--   launches; `several`: more than one run or rank to distinguish.
CREATE MACRO launch_label(grouping, kernel, short_name, family, launch_id, run_id, rank, several) AS CASE grouping
    WHEN 'kernel' THEN kernel
    WHEN 'short_name' THEN short_name
    WHEN 'family' THEN family
    WHEN 'launch' THEN concat_ws(
        ' ', launch_id, short_name, CASE WHEN several THEN concat('(', run_id, ' rank ', rank, ')') END
    )
    ELSE '(all)'
END;

-- @view ncu_tensor_counters  a row is a counter of tensor core operations of a run; together they count each
--   floating-point operation once.
-- `src_fp16` includes `src_fp16_dst_fp32`, which includes `src_fp16_dst_fp32_sparsity_on`: the outermost in the report
-- is used. Counters by instruction (`op_hmma_src_...`) count the same operations again and are used only without the
-- others.
-- @columns run_id
-- @column counter text            Counter.
-- @column type text               Type of the inputs: fp16, bf16, tf32 ...
CREATE VIEW ncu_tensor_counters AS
WITH _paths AS (
    SELECT DISTINCT
        run_id, counter,
        regexp_extract(
            counter, '^sm__ops_path_tensor_(op_[a-z]+_)?src_((?:bf|fp|tf)\d+)', ['instruction', 'type']
        ) AS name
    FROM ncu_counts
    WHERE starts_with(counter, 'sm__ops_path_tensor_')
),
_floats AS (
    SELECT run_id, counter, name.instruction AS instruction, name.type AS type
    FROM _paths
    WHERE name.type <> ''
    QUALIFY name.instruction = '' OR NOT bool_or(name.instruction = '') OVER (PARTITION BY run_id)
)
SELECT run_id, counter, type
FROM _floats f
WHERE NOT EXISTS (FROM _floats o WHERE o.run_id = f.run_id AND starts_with(f.counter, o.counter || '_'));

-- @macro hmma_flops(kernel, compute_capability)  operations of a warp's tensor core instruction, for chips without
--   operation counters.
-- 2 * M * N * K of the shape in the kernel's name (884: a quarter of m16n16k4, as in Nsight Compute's own roofline of
-- Volta; 1688: m16n8k8; 16816: m16n8k16), else of the chip's half-precision shape. NULL from Hopper on, where
-- instructions have many sizes.
CREATE MACRO hmma_flops(kernel, compute_capability) AS CASE
    WHEN compute_capability >= 9 THEN NULL
    WHEN regexp_matches(kernel, '16816') THEN 4096
    WHEN regexp_matches(kernel, '1688|tf32') THEN 2048
    WHEN regexp_matches(kernel, '[a-z_]884') THEN 512
    WHEN compute_capability >= 8 THEN 4096
    WHEN compute_capability >= 7.5 THEN 2048
    WHEN compute_capability >= 7 THEN 512
END;

-- @view launch_flops  a row is a launch profiled by ncu, or a kernel on a device in an nvprof log.
-- @columns run_id, rank, run_group
-- @column launch_id index         Launch, in order of execution; NULL for nvprof.
-- @column kernel text             Kernel.
-- @columns device
-- @column launches count          Launches.
-- @column dur_ns ns               Sum of durations under the profiler; NULL for nvprof.
-- @column fp16_flops FLOP         Half precision outside tensor cores.
-- @column fp32_flops FLOP         Single precision outside tensor cores.
-- @column fp64_flops FLOP         Double precision outside tensor cores.
-- @column tensor_flops FLOP       Tensor cores, all floating-point types; NULL for nvprof.
-- @column tensor_type text        Input type of most tensor core operations; NULL for nvprof.
-- @column total_flops FLOP        Their sum.
-- @column fadd_only_flops FLOP    Single-precision additions that are not part of a multiply-add.
-- @column dram_bytes B            Bytes read from and written to device memory.
-- @column l2_bytes B              Bytes at the L2 cache; NULL for nvprof.
-- @column l1_bytes B              Bytes at the L1 cache; NULL for nvprof.
CREATE VIEW launch_flops AS
WITH _tensor AS (
    SELECT
        run_id, rank, launch_id, sum(count) AS flops, arg_max(type, (count, type)) FILTER (count > 0) AS type
    FROM (
        SELECT run_id, rank, launch_id, type, sum(count) AS count
        FROM ncu_counts JOIN ncu_tensor_counters USING (run_id, counter)
        GROUP BY ALL
    )
    GROUP BY run_id, rank, launch_id
),
_counts AS (
    SELECT
        run_id, rank, launch_id,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_fadd_pred_on') AS fadd,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_fmul_pred_on') AS fmul,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_ffma_pred_on') AS ffma,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_dadd_pred_on') AS dadd,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_dmul_pred_on') AS dmul,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_dfma_pred_on') AS dfma,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_hadd_pred_on') AS hadd,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_hmul_pred_on') AS hmul,
        max(count) FILTER (counter = 'sm__sass_thread_inst_executed_op_hfma_pred_on') AS hfma,
        coalesce(
            max(count) FILTER (counter = 'sm__inst_executed_pipe_tensor_op_hmma'),
            max(count) FILTER (counter = 'sm__inst_executed_pipe_tensor')
        ) - coalesce(max(count) FILTER (counter = 'sm__inst_executed_pipe_tensor_op_hmma_type_hfma2'), 0) AS hmma,
        max(count) FILTER (counter = 'sm__inst_executed_pipe_tensor') AS tensor_instructions,
        max(count) FILTER (counter = 'dram__bytes_read')
            + max(count) FILTER (counter = 'dram__bytes_write') AS dram_both,
        max(count) FILTER (counter = 'dram__bytes') AS dram,
        -- A sector is 32 bytes; the full set has no other count.
        coalesce(
            max(count) FILTER (counter = 'lts__t_bytes'), 32 * max(count) FILTER (counter = 'lts__t_sectors')
        ) AS l2_bytes,
        max(count) FILTER (counter = 'l1tex__t_bytes') AS l1_bytes
    FROM ncu_counts
    GROUP BY run_id, rank, launch_id
),
_capable AS (
    SELECT run_id, TRY_CAST(compute_capability AS DOUBLE) AS compute_capability FROM runs
),
-- Mean x launches. flop_count_* count a multiply-add as 2.
_nvprof AS (
    SELECT
        run_id, rank, any_value(run_group) AS run_group, kernel, device, max(invocations) AS launches,
        max(round(avg * invocations)) FILTER (metric = 'flop_count_hp') AS fp16_flops,
        max(round(avg * invocations)) FILTER (metric = 'flop_count_sp') AS fp32_flops,
        max(round(avg * invocations)) FILTER (metric = 'flop_count_dp') AS fp64_flops,
        fp16_flops + fp32_flops + fp64_flops AS total_flops,
        max(round(avg * invocations)) FILTER (metric = 'flop_count_sp_add') AS fadd_only_flops,
        -- A transaction is 32 bytes.
        32 * (
            max(round(avg * invocations)) FILTER (metric = 'dram_read_transactions')
            + max(round(avg * invocations)) FILTER (metric = 'dram_write_transactions')
        ) AS dram_bytes
    FROM metric_summary
    GROUP BY run_id, rank, kernel, device
    HAVING bool_or(starts_with(metric, 'flop_count_'))
)
SELECT
    run_id, rank, l.run_group, launch_id, l.kernel, l.device, 1::BIGINT AS launches, l.dur_ns,
    2 * hadd + 2 * hmul + 4 * hfma AS fp16_flops,
    fadd + fmul + 2 * ffma AS fp32_flops,
    dadd + dmul + 2 * dfma AS fp64_flops,
    CASE
        WHEN t.flops IS NOT NULL THEN t.flops
        -- No tensor cores before Volta.
        WHEN r.compute_capability < 7 THEN 0
        -- No tensor core instructions. op_hmma does not count all of Hopper's; reports without a chip are older.
        WHEN tensor_instructions = 0 OR (hmma = 0 AND coalesce(r.compute_capability, 7) < 9) THEN 0
        ELSE hmma * hmma_flops(l.kernel, r.compute_capability)
    END AS tensor_flops,
    CASE WHEN t.flops IS NOT NULL THEN t.type
        WHEN hmma > 0 THEN CASE
            WHEN regexp_matches(l.kernel, 'tf32|s1688gemm|s1688fprop|s1688dgrad|s1688wgrad')
                AND r.compute_capability >= 8 THEN 'tf32'
            WHEN contains(l.kernel, 'bf16') THEN 'bf16' ELSE 'fp16'
        END
    END AS tensor_type,
    fp16_flops + fp32_flops + fp64_flops + tensor_flops AS total_flops,
    fadd AS fadd_only_flops,
    coalesce(dram_both, dram) AS dram_bytes, l2_bytes, l1_bytes
FROM ncu_launches l
LEFT JOIN _counts USING (run_id, rank, launch_id)
LEFT JOIN _tensor t USING (run_id, rank, launch_id)
LEFT JOIN _capable r USING (run_id)
UNION ALL BY NAME
FROM _nvprof;

-- @macro whole_sum(x)  sum over launches; NULL unless every launch has the value.
CREATE MACRO whole_sum(x) AS CASE WHEN count(x) = count(*) THEN round(sum(x))::BIGINT END;

-- @macro labelled_launches(grouping)  launch_flops with the label of their row.
-- A launch id is unique within its run and rank only. nvprof has kernels on devices instead of launches.
-- @column * of launch_flops
-- @column family text             Kernel family.
-- @column label text              Label of the row.
-- @column launch_key id           Key of a single launch; NULL if launches are summed by label.
CREATE MACRO labelled_launches(grouping) AS TABLE
WITH _places AS (
    SELECT run_group, count(DISTINCT (run_id, rank)) > 1 AS several FROM launch_flops GROUP BY run_group
)
SELECT
    l.*, n.family,
    launch_label(grouping, l.kernel, n.short_name, n.family, l.launch_id, l.run_id, l.rank, p.several) AS label,
    CASE WHEN grouping = 'launch' THEN (l.run_id, l.rank, l.launch_id, l.kernel, l.device) END AS launch_key
FROM launch_flops l
JOIN kernel_names n ON n.run_id = l.run_id AND n.name = l.kernel
JOIN _places p ON p.run_group IS NOT DISTINCT FROM l.run_group;

-- @macro launch_sums(grouping)  launches summed by `grouping`.
-- @columns run_group
-- @column kernel text             Label of the row.
-- @column launches count          Launches.
-- @column dur_ns ns               Sum of durations under the profiler.
-- @column fp16_flops FLOP         Half precision outside tensor cores.
-- @column fp32_flops FLOP         Single precision outside tensor cores.
-- @column fp64_flops FLOP         Double precision outside tensor cores.
-- @column tensor_flops FLOP       Tensor cores, all floating-point types.
-- @column total_flops FLOP        Their sum.
-- @column fadd_only_flops FLOP    Single-precision additions that are not part of a multiply-add.
-- @column dram_bytes B            Bytes read from and written to device memory.
-- @column l2_bytes B              Bytes at the L2 cache.
-- @column l1_bytes B              Bytes at the L1 cache.
CREATE MACRO launch_sums(grouping) AS TABLE
SELECT
    run_group, label AS kernel,
    sum(launches)::BIGINT AS launches, whole_sum(dur_ns) AS dur_ns,
    whole_sum(fp16_flops) AS fp16_flops, whole_sum(fp32_flops) AS fp32_flops, whole_sum(fp64_flops) AS fp64_flops,
    whole_sum(tensor_flops) AS tensor_flops, whole_sum(total_flops) AS total_flops,
    whole_sum(fadd_only_flops) AS fadd_only_flops, whole_sum(dram_bytes) AS dram_bytes,
    whole_sum(l2_bytes) AS l2_bytes, whole_sum(l1_bytes) AS l1_bytes
FROM labelled_launches(grouping)
GROUP BY run_group, label, launch_key;
