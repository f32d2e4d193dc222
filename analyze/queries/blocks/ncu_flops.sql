-- Floating-point operations and bytes of every profiled launch; NULL where the report does not say.
-- @use ncu_counts

-- @view ncu_tensor_counters  a row is a counter of tensor core operations of a run.
-- Those that together count each operation once. `src_fp16` holds `src_fp16_dst_fp32`, which holds
-- `src_fp16_dst_fp32_sparsity_on`: the outermost that a report has. The same operations are counted once more by
-- instruction (`op_hmma_src_...`): those only where there is no other. Integers are no floating-point operations.
-- @column run_id id             The run.
-- @column counter text          Counter.
-- @column type text             Type of the inputs: fp16, bf16, tf32 ...
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
-- operation counters: 2 * M * N * K of the shape in the kernel's name (884: a quarter of m16n16k4, as Nsight Compute's
-- own roofline of Volta takes it; 1688: m16n8k8; 16816: m16n8k16), else of the chip's own half-precision shape. NULL
-- from Hopper on, where instructions come in many sizes.
CREATE MACRO hmma_flops(kernel, compute_capability) AS CASE
    WHEN compute_capability >= 9 THEN NULL
    WHEN regexp_matches(kernel, '16816') THEN 4096
    WHEN regexp_matches(kernel, '1688|tf32') THEN 2048
    WHEN regexp_matches(kernel, '[a-z_]884') THEN 512
    WHEN compute_capability >= 8 THEN 4096
    WHEN compute_capability >= 7.5 THEN 2048
    WHEN compute_capability >= 7 THEN 512
END;

-- @view nvprof_flops  a row is a kernel on a device.
-- What nvprof counted is of a kernel, not of a launch: mean times launches. Its flop_count_* count a multiply-add as 2.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column kernel text           Kernel.
-- @column device index          GPU.
-- @column launches count        Launches.
-- @column dur_ns ns             NULL: nvprof does not say.
-- @column fp16_flops FLOP       Half precision outside tensor cores.
-- @column fp32_flops FLOP       Single precision outside tensor cores.
-- @column fp64_flops FLOP       Double precision outside tensor cores.
-- @column tensor_flops FLOP     NULL: nvprof does not say.
-- @column tensor_type text      NULL: nvprof does not say.
-- @column total_flops FLOP      Their sum.
-- @column fadd_only_flops FLOP  Single-precision additions that are no part of a multiply-add.
-- @column dram_bytes B          Bytes read from and written to device memory.
-- @column l2_bytes B            NULL: nvprof does not say.
-- @column l1_bytes B            NULL: nvprof does not say.
CREATE VIEW nvprof_flops AS
SELECT
    run_id, rank, any_value(run_group) AS run_group, kernel, device, max(invocations) AS launches,
    NULL::BIGINT AS dur_ns,
    max(round(avg * invocations)) FILTER (metric = 'flop_count_hp') AS fp16_flops,
    max(round(avg * invocations)) FILTER (metric = 'flop_count_sp') AS fp32_flops,
    max(round(avg * invocations)) FILTER (metric = 'flop_count_dp') AS fp64_flops,
    NULL::DOUBLE AS tensor_flops, NULL::VARCHAR AS tensor_type,
    fp16_flops + fp32_flops + fp64_flops AS total_flops,
    max(round(avg * invocations)) FILTER (metric = 'flop_count_sp_add') AS fadd_only_flops,
    -- A transaction is 32 bytes.
    32 * (
        max(round(avg * invocations)) FILTER (metric = 'dram_read_transactions')
        + max(round(avg * invocations)) FILTER (metric = 'dram_write_transactions')
    ) AS dram_bytes,
    NULL::DOUBLE AS l2_bytes, NULL::DOUBLE AS l1_bytes
FROM metric_summary
GROUP BY run_id, rank, kernel, device
HAVING bool_or(starts_with(metric, 'flop_count_'));

-- @view launch_flops  a row is a launch that ncu profiled, or of nvprof a kernel on a device.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column launch_id index       Launch, in order of execution; NULL of nvprof.
-- @column kernel text           Kernel.
-- @column device index          GPU.
-- @column launches count        Launches.
-- @column dur_ns ns             Sum of durations under the profiler; NULL of nvprof.
-- @column fp16_flops FLOP       Half precision outside tensor cores.
-- @column fp32_flops FLOP       Single precision outside tensor cores.
-- @column fp64_flops FLOP       Double precision outside tensor cores.
-- @column tensor_flops FLOP     Tensor cores, all floating-point types; NULL of nvprof.
-- @column tensor_type text      Type that they took most of; NULL of nvprof.
-- @column total_flops FLOP      Their sum.
-- @column fadd_only_flops FLOP  Single-precision additions that are no part of a multiply-add.
-- @column dram_bytes B          Bytes read from and written to device memory.
-- @column l2_bytes B            Bytes at the L2 cache; NULL of nvprof.
-- @column l1_bytes B            Bytes at the L1 cache; NULL of nvprof.
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
        -- None were executed, of whatever size. Of Hopper's, op_hmma does not count all; a report that does not say its
        -- chip is older than Hopper.
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
SELECT *, NULL::BIGINT AS launch_id FROM nvprof_flops;

-- @macro whole_sum(x)  sum over launches; NULL unless every one of them has the figure.
CREATE MACRO whole_sum(x) AS CASE WHEN count(x) = count(*) THEN round(sum(x))::BIGINT END;

-- @macro labelled_launches(grouping)  launch_flops with what the row of a query is called.
-- A launch is one only within its run and rank, which its label names where there are several. nvprof has no launches,
-- but a kernel on a device.
-- @column * of launch_flops
-- @column family text           Kernel family.
-- @column label text            What the row is called.
-- @column launch_key id         What its launches share; NULL where launches are added up by their label.
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

-- @macro launch_sums(grouping)  launches added up by `grouping`.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column kernel text           What the row is called.
-- @column launches count        Launches.
-- @column dur_ns ns             Sum of durations under the profiler.
-- @column fp16_flops FLOP       Half precision outside tensor cores.
-- @column fp32_flops FLOP       Single precision outside tensor cores.
-- @column fp64_flops FLOP       Double precision outside tensor cores.
-- @column tensor_flops FLOP     Tensor cores, all floating-point types.
-- @column total_flops FLOP      Their sum.
-- @column fadd_only_flops FLOP  Single-precision additions that are no part of a multiply-add.
-- @column dram_bytes B          Bytes read from and written to device memory.
-- @column l2_bytes B            Bytes at the L2 cache.
-- @column l1_bytes B            Bytes at the L1 cache.
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
