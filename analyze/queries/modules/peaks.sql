-- Peaks of the GPU of each run: operations and bytes per second (roofs), and the links that copies use.
-- @use device_peaks, ncu

-- @view run_devices  a row is a run whose GPU is in schemas/devices.toml.
-- @columns run_id
-- @column * of device_peaks
CREATE VIEW run_devices AS SELECT r.run_id, p.* FROM runs r JOIN device_peaks p USING (gpu_name);

-- @view copy_peaks  a row is a kind of copy in a run, with the published peak of its link.
-- Host copies use PCIe, copies between GPUs NVLink if there is one, both in one direction. A copy within a device reads
-- and writes its memory: half of the bandwidth.
-- @columns run_id
-- @column kind text               HtoD, DtoH, DtoD, PtoP ...
-- @column peak_gb_per_s GB/s      Published peak; NULL if schemas/devices.toml has none.
CREATE VIEW copy_peaks AS
SELECT
    run_id, kind,
    CASE
        WHEN kind IN ('HtoD', 'DtoH') THEN pcie_gb_per_s
        WHEN kind = 'PtoP' THEN coalesce(nvlink_gb_per_s, pcie_gb_per_s)
        WHEN kind = 'DtoD' THEN dram_gb_per_s / 2
    END AS peak_gb_per_s
FROM run_devices CROSS JOIN (SELECT DISTINCT kind FROM memcpys);

-- @view measured_roofs  a row is a roof of a run, from the report: peak per cycle x the mean clock while kernels ran,
--   weighted by their time.
-- @columns run_id
-- @column kind text               compute or memory.
-- @column roof text               fp16, fp32, fp64, tensor_TYPE; dram, l2, l1.
-- @column rate number             Operations or bytes per second.
CREATE VIEW measured_roofs AS
WITH _peaks AS (
    SELECT run_id, regexp_replace(metric, '\.sum\.peak_sustained$', '') AS counter, max(value) AS per_cycle
    FROM ncu_metrics
    WHERE metric LIKE '%.sum.peak\_sustained' ESCAPE '\' AND value > 0
    GROUP BY ALL
),
_clocks AS (
    SELECT
        run_id, regexp_extract(metric, '^(sm|dram|lts|l1tex)__', 1) AS unit,
        -- In whole Hz: a floating-point sum depends on the order of the threads.
        sum(round(value)::HUGEINT * dur_ns) / sum(dur_ns) AS hz
    FROM ncu_metrics JOIN ncu_launches USING (run_id, rank, launch_id)
    WHERE metric IN (
        'sm__cycles_elapsed.avg.per_second', 'dram__cycles_elapsed.avg.per_second',
        'lts__cycles_elapsed.avg.per_second', 'l1tex__cycles_elapsed.avg.per_second'
    ) AND dur_ns > 0
    GROUP BY ALL
),
_named AS (
    SELECT
        p.run_id, per_cycle * hz AS rate,
        CASE counter
            WHEN 'dram__bytes' THEN 'dram' WHEN 'lts__t_bytes' THEN 'l2' WHEN 'l1tex__t_bytes' THEN 'l1'
            WHEN 'sm__sass_thread_inst_executed_op_ffma_pred_on' THEN 'fp32'
            WHEN 'sm__sass_thread_inst_executed_op_dfma_pred_on' THEN 'fp64'
            WHEN 'sm__sass_thread_inst_executed_op_hfma_pred_on' THEN 'fp16'
            ELSE nullif(
                'tensor_' || regexp_extract(counter, '^sm__ops_path_tensor_src_((?:bf|fp|tf)\d+)', 1), 'tensor_'
            )
        END AS roof,
        CASE
            -- A multiply-add is 2 operations; half precision works on pairs.
            WHEN roof IN ('fp32', 'fp64') THEN 2
            WHEN roof = 'fp16' THEN 4
            -- The report's peak is for 2:4 sparse matrices, twice the dense peak; fp64 has no sparse peak.
            WHEN roof LIKE 'tensor%' AND roof <> 'tensor_fp64' AND NOT contains(counter, 'sparsity_off') THEN 0.5
            ELSE 1
        END AS scale
    FROM _peaks p JOIN _clocks c ON c.run_id = p.run_id AND starts_with(p.counter, c.unit || '__')
)
SELECT
    run_id, CASE WHEN roof IN ('dram', 'l2', 'l1') THEN 'memory' ELSE 'compute' END AS kind, roof,
    max(rate * scale) AS rate
FROM _named
WHERE roof IS NOT NULL
GROUP BY ALL;

-- @view published_roofs  a row is a roof of a run's GPU, as published.
-- @columns run_id
-- @column kind text               compute or memory.
-- @column roof text               fp16, fp32, fp64, tensor_TYPE; dram, l2, l1.
-- @column rate number             Operations or bytes per second.
CREATE VIEW published_roofs AS
WITH _peaks AS (
    UNPIVOT (
        SELECT
            gpu_name, dram_gb_per_s * 1e9 AS dram, fp16_tflops * 1e12 AS fp16, fp32_tflops * 1e12 AS fp32,
            fp64_tflops * 1e12 AS fp64, fp64_tensor_tflops * 1e12 AS tensor_fp64,
            tf32_tensor_tflops * 1e12 AS tensor_tf32, fp16_tensor_tflops * 1e12 AS tensor_fp16,
            bf16_tensor_tflops * 1e12 AS tensor_bf16, fp8_tensor_tflops * 1e12 AS tensor_fp8,
            int8_tensor_tops * 1e12 AS tensor_int8, fp4_tensor_tflops * 1e12 AS tensor_fp4
        FROM device_peaks
    ) ON COLUMNS(* EXCLUDE (gpu_name)) INTO NAME roof VALUE rate
)
SELECT run_id, CASE WHEN roof = 'dram' THEN 'memory' ELSE 'compute' END AS kind, roof, rate
FROM _peaks JOIN runs USING (gpu_name);

-- @view published_peaks  a row is a run whose GPU has published roofs.
-- @columns run_id
-- @column peak row                Operations per second, a map by compute roof.
-- @column bandwidth number        Bytes per second of its memory.
CREATE VIEW published_peaks AS
SELECT
    run_id, map_from_entries(list((roof, rate)) FILTER (kind = 'compute')) AS peak,
    max(rate) FILTER (kind = 'memory') AS bandwidth
FROM published_roofs
GROUP BY run_id;

-- @view roofs  a row is a roof of a run: from the report, else published.
-- @columns run_id, run_group
-- @column kind text               compute or memory.
-- @column roof text               fp16, fp32, fp64, tensor_TYPE; dram, l2, l1.
-- @column rate number             Operations or bytes per second.
-- @column source text             report or published.
CREATE VIEW roofs AS
WITH _all AS (
    SELECT run_id, kind, roof, rate, 'report' AS source FROM measured_roofs
    UNION ALL
    SELECT run_id, kind, roof, rate, 'published' FROM published_roofs
)
SELECT run_id, any_value(r.run_group) AS run_group, kind, roof, arg_max(rate, source) AS rate, max(source) AS source
FROM _all JOIN (SELECT DISTINCT run_id, run_group FROM ncu_launches) r USING (run_id)
GROUP BY run_id, kind, roof;

-- @macro roof_side(peak, flops, bytes, bandwidth)  the side of the ridge: memory or compute.
-- NULL unless both roofs are known; one is enough if nothing was computed, or nothing moved.
CREATE MACRO roof_side(peak, flops, bytes, bandwidth) AS CASE
    WHEN flops = 0 AND bytes = 0 THEN NULL
    WHEN flops = 0 THEN CASE WHEN bytes * bandwidth IS NOT NULL THEN 'memory' END
    WHEN bytes = 0 THEN CASE WHEN flops * peak IS NOT NULL THEN 'compute' END
    WHEN flops::DOUBLE / bytes * bandwidth <= peak THEN 'memory'
    WHEN flops::DOUBLE / bytes * bandwidth > peak THEN 'compute'
END;

-- @macro attainable(peak, flops, bytes, bandwidth)  the roof above: attainable operations per second.
-- NULL if the side of the ridge is not known.
CREATE MACRO attainable(peak, flops, bytes, bandwidth) AS CASE roof_side(peak, flops, bytes, bandwidth)
    WHEN 'memory' THEN flops::DOUBLE / bytes * bandwidth
    WHEN 'compute' THEN peak
END;
