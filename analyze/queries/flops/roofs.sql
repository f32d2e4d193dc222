-- Which roofs do the GPUs have: operations and bytes per second?
--
-- From the report: peak per cycle x clock while the kernels ran (collect --ncu-metrics roofline or full); else the
-- published peaks in schemas/devices.toml. Nsight Compute reports tensor core peaks of 2:4 sparse matrices; here they
-- are halved to dense peaks. L1 counts the bytes of its tag stage: 512 per cycle and SM on an H200.
-- @column run_id id               The run.
-- @column roof text               fp16, fp32, fp64, tensor_TYPE; dram, l2, l1.
-- @column flops_per_s FLOP/s      Peak of a compute roof.
-- @column gb_per_s GB/s           Peak of a memory roof.
-- @column source text             report or published.
-- @main run_id, roof, flops_per_s, gb_per_s, source
-- @order run_id, flops_per_s NULLS LAST, gb_per_s, roof
-- @use peaks
-- @needs a recording of Nsight Compute
SELECT
    run_group, run_id, roof,
    CASE WHEN kind = 'compute' THEN rate END AS flops_per_s,
    CASE WHEN kind = 'memory' THEN rate / 1e9 END AS gb_per_s,
    source
FROM roofs
