-- How many floating-point operations did the kernels execute?
--
-- From the counters of Nsight Compute: add + mul + 2 fma for fp32 and fp64; fp16 instructions work on pairs, so 2 add +
-- 2 mul + 4 fma; tensor cores by operation counters (a multiply-add is 2), or on chips without them by instructions x
-- operations per instruction. fadd_only_flops counts only the fp32 additions, without fused multiply-adds and tensor
-- cores. For nvprof logs: the flop_count_* metrics. A figure is empty if the report lacks one of its counters for any
-- launch of the row; total_flops needs all four. On Hopper, fp32 kernels load constants by half-precision
-- multiply-adds, which count as fp16.
-- @param group kernel|short_name|family|launch|all = kernel   What a row is; all is one row.
-- @param images number[0..1e12] = 0   Images that the launches processed; 0: batch size x steps x ranks of the runs, if
--                                 the steps are known.
-- @column kernel text             Kernel, its short name, family, or launch; (all) for the sum.
-- @column launches count          Profiled launches.
-- @column dur_ns ns               Sum of durations under the profiler.
-- @column fp16_flops FLOP         Half precision outside tensor cores.
-- @column fp32_flops FLOP         Single precision outside tensor cores.
-- @column fp64_flops FLOP         Double precision outside tensor cores.
-- @column tensor_flops FLOP       Tensor cores, all floating-point types.
-- @column total_flops FLOP        Their sum.
-- @column fadd_only_flops FLOP    Single-precision additions that are not part of a multiply-add.
-- @column dram_bytes B            Bytes read from and written to device memory.
-- @column flops_per_image FLOP    total_flops / images.
-- @column fadd_only_per_image FLOP   fadd_only_flops / images.
-- @main kernel, launches, dur_ns, total_flops, fadd_only_flops, flops_per_image
-- @order total_flops DESC NULLS LAST, dur_ns DESC NULLS LAST, kernel
-- @use ncu, steps
-- @needs FLOP metrics of Nsight Compute (collect run --profiler ncu) or nvprof
-- @plot bars y=kernel x=total_flops
-- @drill kernel metrics kernel=^\Q{kernel}\E$
WITH profiled AS (
    SELECT DISTINCT run_group, run_id, rank FROM launch_flops
),
images AS (
    SELECT p.run_group, sum(batch_size * s.steps)::BIGINT AS images
    FROM profiled p JOIN runs r USING (run_id) LEFT JOIN step_counts s USING (run_id, rank)
    GROUP BY p.run_group
    -- Only if known for all ranks, and whole steps were profiled.
    HAVING count(batch_size * s.steps) = count(*) AND NOT bool_or(coalesce(command, '') LIKE '%--ncu-launches%')
)
SELECT
    r.run_group, kernel, launches, dur_ns, fp16_flops, fp32_flops, fp64_flops, tensor_flops, total_flops,
    fadd_only_flops, dram_bytes,
    total_flops::DOUBLE / coalesce(nullif($images, 0), images) AS flops_per_image,
    fadd_only_flops::DOUBLE / coalesce(nullif($images, 0), images) AS fadd_only_per_image
FROM launch_sums('{group}') r LEFT JOIN images i ON i.run_group IS NOT DISTINCT FROM r.run_group
