-- How many floating-point operations does each kernel execute per byte that it moves?
--
-- FLOPs as in `flops`, and the bytes at each memory level that the report has: device memory (dram), the L2 cache
-- (lts__t_bytes) and the L1 cache (l1tex__t_bytes). FLOP/B is the ratio of the sums of a row.
-- @param group kernel|short_name|family|launch|all = kernel   What a row is; all is one row.
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
-- @column flops_per_byte FLOP/B   total_flops / dram_bytes.
-- @column l2_bytes B              Bytes through the L2 cache.
-- @column l2_flops_per_byte FLOP/B   total_flops / l2_bytes.
-- @column l1_bytes B              Bytes through the L1 cache.
-- @column l1_flops_per_byte FLOP/B   total_flops / l1_bytes.
-- @main kernel, launches, dur_ns, total_flops, dram_bytes, flops_per_byte
-- @order total_flops DESC NULLS LAST, dur_ns DESC NULLS LAST, kernel
-- @use ncu
-- @needs FLOP and memory metrics of Nsight Compute (collect run --profiler ncu) or nvprof
SELECT
    *,
    total_flops::DOUBLE / nullif(dram_bytes, 0) AS flops_per_byte,
    total_flops::DOUBLE / nullif(l2_bytes, 0) AS l2_flops_per_byte,
    total_flops::DOUBLE / nullif(l1_bytes, 0) AS l1_flops_per_byte
FROM launch_sums('{group}')
