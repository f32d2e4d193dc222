-- How close is each kernel to the roofline, and is it memory-bound or compute-bound?
--
-- A point is at x = FLOP/B of a memory level, y = FLOP/s. Its roof is min(peak, x * bandwidth): the peak of the type of
-- operation that the kernel executes most (fp16, fp32, fp64 or tensor cores; for tensor cores, the input type with most
-- FLOPs over the launches of the row), and the bandwidth of the level. Left of the ridge a kernel is bound by memory,
-- and roof_pct is its share of the bandwidth (also for kernels without FLOPs); right of it, its share of the peak.
-- Above 100 %: a level exceeded its own peak, as short kernels at higher clocks do. Roofs as in `roofs`.
-- @param group kernel|short_name|family|launch = kernel   What a row is.
-- @param level all|dram|l2|l1 = all   Memory level.
-- @column run_id id               The run.
-- @column kernel text             Kernel, its short name, family, or launch.
-- @column family text             Kernel family.
-- @column level text              Memory level.
-- @column launches count          Profiled launches.
-- @column dur_ns ns               Sum of durations under the profiler.
-- @column flops FLOP              Operations executed.
-- @column bytes B                 Bytes moved at the level.
-- @column flops_per_byte FLOP/B   Arithmetic intensity.
-- @column flops_per_s FLOP/s      Achieved rate.
-- @column gb_per_s GB/s           Achieved bandwidth.
-- @column peak_roof text          Compute roof that the kernel is compared with.
-- @column attainable_flops_per_s FLOP/s   min(peak, flops_per_byte * bandwidth); empty unless both are known.
-- @column bound text              memory or compute; empty unless both are known.
-- @column roof_pct %              Achieved rate / attainable rate.
-- @column roof_source text        report or published; both if the two roofs differ.
-- @main run_id, kernel, level, dur_ns, flops_per_byte, flops_per_s, bound, roof_pct
-- @order dur_ns DESC, kernel, run_id, level
-- @use ncu, peaks
-- @needs FLOP and memory metrics of Nsight Compute (collect run --profiler ncu)
-- @plot roofline
-- @drill kernel metrics kernel=^\Q{kernel}\E$
WITH typed AS (
    SELECT
        *, sum(tensor_flops) OVER (
            PARTITION BY run_group, run_id, label, launch_key, tensor_type
        ) AS flops_of_type
    FROM labelled_launches('{group}')
),
profiled_kernels AS (
    SELECT
        run_group, run_id, label AS kernel, any_value(family) AS family,
        sum(launches)::BIGINT AS launches, whole_sum(dur_ns) AS dur_ns, whole_sum(total_flops) AS flops,
        {
            'fp16': sum(fp16_flops), 'fp32': sum(fp32_flops), 'fp64': sum(fp64_flops), 'tensor': sum(tensor_flops)
        } AS parts,
        arg_max('tensor_' || tensor_type, (flops_of_type, tensor_type)) FILTER (tensor_flops > 0) AS tensor_roof,
        whole_sum(dram_bytes) AS dram_bytes, whole_sum(l2_bytes) AS l2_bytes, whole_sum(l1_bytes) AS l1_bytes
    FROM typed
    GROUP BY run_group, run_id, label, launch_key
    HAVING whole_sum(dur_ns) > 0
),
points AS (
    UNPIVOT profiled_kernels ON dram_bytes AS 'dram', l2_bytes AS 'l2', l1_bytes AS 'l1' INTO NAME level VALUE bytes
),
held AS (
    SELECT
        * EXCLUDE (parts),
        CASE greatest(parts.fp32, parts.fp16, parts.fp64, parts.tensor)
            WHEN 0 THEN 'fp32'
            WHEN parts.tensor THEN tensor_roof WHEN parts.fp32 THEN 'fp32' WHEN parts.fp64 THEN 'fp64' ELSE 'fp16'
        END AS peak_roof,
        flops::DOUBLE / nullif(bytes, 0) AS flops_per_byte,
        flops * 1e9 / dur_ns AS flops_per_s,
        bytes::DOUBLE / dur_ns AS gb_per_s
    FROM points
    WHERE flops IS NOT NULL AND '{level}' IN ('all', level)
),
roofed AS (
    SELECT
        h.*, attainable(c.rate, flops, bytes, m.rate) AS attainable_flops_per_s,
        roof_side(c.rate, flops, bytes, m.rate) AS bound,
        c.rate AS peak, m.rate AS bandwidth,
        CASE WHEN c.source = m.source THEN c.source ELSE c.source || ', ' || m.source END AS roof_source
    FROM held h
    LEFT JOIN roofs c ON c.run_id = h.run_id AND c.kind = 'compute' AND c.roof = h.peak_roof
    LEFT JOIN roofs m ON m.run_id = h.run_id AND m.kind = 'memory' AND m.roof = h.level
)
SELECT
    * EXCLUDE (tensor_roof, peak, bandwidth),
    CASE bound
        WHEN 'memory' THEN 100.0 * gb_per_s * 1e9 / bandwidth
        WHEN 'compute' THEN 100.0 * flops_per_s / peak
    END AS roof_pct
FROM roofed
