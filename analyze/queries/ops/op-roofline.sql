-- How close does each operator come to the roofline of its GPU?
--
-- FLOPs as in `flops-by-op` (causal attention counts half). Bytes are the operator's inputs and outputs, each once,
-- from shapes (record_shapes) and types: the least that it must move, not what it moved (`roofline` has that, from
-- Nsight Compute). Time is the union of the GPU work launched in the calls. Listed are operators with known FLOPs,
-- operators whose outputs follow from their inputs (elementwise, normalization, softmax), and the Triton kernels of
-- torch.compile, whose arguments are their inputs and outputs (an in-place update is read and written, which the trace
-- does not show). The latter two have no counted FLOPs and are compared with the bandwidth only. A nested call belongs
-- to the outer one. The roof is min(peak, FLOP/B * bandwidth), with the peak of the first input's type, with tensor
-- cores if the GPU has them; for fp32, the TF32 peak if a kernel's name or the run's precision says TF32. Above 100 %:
-- the data was still in the L2 cache.
-- @param group shape|name = shape   What a row is: an operator with the shapes of its inputs, or an operator.
-- @column name text               Operator.
-- @column shapes text             Shapes of its inputs; empty for group=name.
-- @column type text               Type of its first input; of operators of servers, of the numbers they multiply.
-- @column gpu_name text           GPU.
-- @column calls count             Calls that launched GPU work.
-- @column busy_ns ns              Union of that work per device, summed over devices.
-- @column flops FLOP              Model FLOPs; empty if they are not counted or only a bound is known (see
--                                 `flops-by-op`).
-- @column bytes B                 Inputs and outputs; empty if a shape is missing, or an argument of a Triton kernel is
--                                 larger than its loop.
-- @column flops_per_byte FLOP/B   Arithmetic intensity.
-- @column flops_per_s FLOP/s      Achieved rate.
-- @column gb_per_s GB/s           Achieved bandwidth.
-- @column peak_roof text          Compute roof that it is compared with.
-- @column attainable_flops_per_s FLOP/s   min(peak, flops_per_byte * bandwidth); empty unless both are known.
-- @column bound text              memory or compute; empty for a GPU without published peaks.
-- @column roof_pct %              Achieved rate / attainable rate.
-- @main name, shapes, busy_ns, flops_per_s, bound, roof_pct
-- @order busy_ns DESC, name, shapes
-- @use arithmetic, gpu_timeline, intervals, op_bytes, op_flops, peaks
-- @needs operators with input shapes (record_shapes=True) that launched kernels
-- @rows if operators with input shapes launched kernels
-- @pass gpu
WITH launched AS MATERIALIZED (
    SELECT run_id, rank, call, signature, is_tf32, alone_ns, coalesce(replays, 1) AS calls
    FROM (
        SELECT
            w.run_id, w.rank, w.sized_call AS call, any_value(w.graph) AS graph,
            coalesce(bool_or(p.is_tf32), false) AS is_tf32, sum(at_least_0(w.dur_ns)) FILTER (w.alone) AS alone_ns
        FROM gpu_work w LEFT JOIN kernel_precisions p ON p.run_id = w.run_id AND p.name = w.name
        WHERE w.sized_call IS NOT NULL
        GROUP BY ALL
    )
    JOIN (SELECT run_id, rank, call, signature FROM sized_calls) USING (run_id, rank, call)
    LEFT JOIN replays USING (run_id, rank, graph)
),
kinds AS MATERIALIZED (
    SELECT
        row_number() OVER () AS kind_id, s.*, c.is_tf32, c.calls, c.alone_ns, r.gpu_name,
        is_tf32 OR coalesce(r.precision = 'tf32', false) AS tf32,
        TRY_CAST(s.input_dims AS JSON[]) AS dims, TRY_CAST(s.input_types AS VARCHAR[]) AS types
    FROM (
        SELECT run_id, rank, signature, is_tf32, sum(calls)::BIGINT AS calls, sum(alone_ns)::BIGINT AS alone_ns
        FROM launched
        GROUP BY ALL
    ) c
    JOIN call_signatures s USING (run_id, rank, signature)
    LEFT JOIN (SELECT run_id, gpu_name, precision FROM runs) r ON r.run_id = s.run_id
),
shapes AS (
    SELECT
        *, TRY_CAST(dims[1] AS BIGINT[]) AS a, TRY_CAST(dims[2] AS BIGINT[]) AS b, TRY_CAST(dims[3] AS BIGINT[]) AS c,
        TRY_CAST(dims[4] AS BIGINT[]) AS d
    FROM kinds
),
inputs AS (
    SELECT
        kind_id,
        -- An argument larger than the loop is read in part; the trace does not tell how much.
        CASE WHEN NOT coalesce(bool_or(output = 'arguments' AND size > elements), false)
            THEN sum(size * input_dtype_bytes(type))::BIGINT END AS input_bytes
    FROM (
        SELECT * REPLACE (elements(TRY_CAST(size AS BIGINT[])) AS size)
        FROM (
            SELECT
                kind_id, output, unnest(dims) AS size, unnest(types) AS type,
                generated_elements(concrete_inputs) AS elements
            FROM kinds
        )
    )
    GROUP BY kind_id
),
figures AS (
    SELECT
        s.*,
        CASE WHEN output NOT IN ('like 0', 'broadcast', 'arguments')
                AND NOT at_most
            THEN coalesce(server_flops, call_flops(output, name, a, b, c, d, concrete_inputs, gradients))::BIGINT END
            AS flops,
        CASE WHEN starts_with(output, 'server_') THEN server_bytes ELSE input_bytes
            + output_elements(output, name, a, b, c, d, concrete_inputs, flops) * input_dtype_bytes(type)
        END AS bytes
    FROM shapes s JOIN inputs USING (kind_id)
),
rows AS (
    SELECT
        *, CASE WHEN '{group}' = 'shape' THEN spaced_shapes(input_dims) END AS shapes,
        output IN ('like 0', 'broadcast', 'arguments') AS uncounted,
        dense_rank() OVER (ORDER BY run_group, gpu_name, name, type, shapes, tf32)::INTEGER AS row_id
    FROM figures
),
-- Work alone on its GPU adds up. A track of other work is a row and a GPU: the row's number in the upper 32 bits.
overlapping AS (
    SELECT (r.row_id::BIGINT << 32) + g.track AS track, w.start_ns, w.start_ns + w.dur_ns AS end_ns
    FROM gpu_work w
    JOIN gpu_tracks g ON g.run_id = w.run_id AND g.rank = w.rank AND g.device IS NOT DISTINCT FROM w.device
    JOIN launched l ON l.run_id = w.run_id AND l.rank = w.rank AND l.call = w.sized_call
    JOIN rows r ON r.run_id = l.run_id AND r.rank = l.rank AND r.signature = l.signature AND r.is_tf32 = l.is_tf32
    WHERE NOT w.alone
),
overlapped AS (
    SELECT (track >> 32)::INTEGER AS row_id, sum(covered_ns) AS covered_ns
    FROM intervals_coverage('overlapping')
    GROUP BY ALL
),
sums AS (
    SELECT
        row_id, any_value(run_group) AS run_group, any_value(run_id) AS run_id, any_value(gpu_name) AS gpu_name,
        any_value(name) AS name, any_value(shapes) AS shapes, any_value(type) AS type, bool_or(tf32) AS tf32,
        sum(calls)::BIGINT AS calls, sum(alone_ns) AS alone_ns,
        CASE WHEN count(flops) = count(*) THEN sum(flops::HUGEINT * calls)::BIGINT END AS flops,
        CASE WHEN count(bytes) = count(*) THEN sum(bytes::HUGEINT * calls)::BIGINT END AS bytes,
        bool_or(uncounted) AS uncounted
    FROM rows
    GROUP BY row_id
),
timed AS (
    SELECT s.*, (coalesce(alone_ns, 0) + coalesce(covered_ns, 0))::BIGINT AS busy_ns
    FROM sums s LEFT JOIN overlapped USING (row_id)
),
roofed AS (
    SELECT
        t.*, flops::DOUBLE / nullif(bytes, 0) AS flops_per_byte, flops * 1e9 / nullif(busy_ns, 0) AS flops_per_s,
        bytes::DOUBLE / nullif(busy_ns, 0) AS gb_per_s, p.peak, p.bandwidth,
        list_filter(compute_roofs(type, tf32), lambda roof : p.peak[roof] IS NOT NULL)[1] AS peak_roof
    FROM timed t LEFT JOIN published_peaks p ON p.run_id = t.run_id
),
bound AS (
    SELECT
        * EXCLUDE (peak_roof), CASE WHEN NOT uncounted THEN peak_roof END AS peak_roof,
        CASE WHEN NOT uncounted THEN attainable(peak[peak_roof], flops, bytes, bandwidth) END AS attainable_flops_per_s,
        CASE
            WHEN NOT uncounted THEN roof_side(peak[peak_roof], flops, bytes, bandwidth)
            WHEN bandwidth IS NOT NULL AND bytes IS NOT NULL THEN 'memory'
        END AS bound
    FROM roofed
)
SELECT
    run_group, name, shapes, type, gpu_name, calls, busy_ns, flops, bytes, flops_per_byte, flops_per_s, gb_per_s,
    peak_roof, attainable_flops_per_s, bound,
    CASE bound
        WHEN 'memory' THEN 100.0 * gb_per_s * 1e9 / bandwidth
        WHEN 'compute' THEN 100.0 * flops_per_s / peak[peak_roof]
    END AS roof_pct
FROM bound
