-- How well do the kernels fill each GPU?
--
-- The three figures of TensorBoard's profiler page, from what Kineto records for each kernel. Utilization: share of the
-- window with any kernel. Estimated SM efficiency: blocks per SM of the running kernels, summed and at most 1, averaged
-- over the window. Estimated achieved occupancy: mean over the kernels, weighted by their time. If the file has no
-- blocks per SM, they are blocks / SMs of the GPU, if schemas/devices.toml has it. In a GPU-only block, blocks per SM
-- and occupancy are from the twins.
-- @param window span|step = span  What a row is: the whole recording, or a training step (as in breakdown).
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column step index              Training step; empty for the whole span.
-- @column span_ns ns              Length of the window.
-- @column kernel_ns ns            Union of kernels.
-- @column utilization_pct %       Share of the span.
-- @column sm_efficiency_pct %     Time-weighted min(1, blocks per SM) over the span; empty if no kernel has them.
-- @column occupancy_pct %         Time-weighted occupancy over the kernels; empty if no kernel has it.
-- @main run_id, rank, device, step, span_ns, utilization_pct, sm_efficiency_pct, occupancy_pct
-- @order run_id, rank, device, step
-- @use arithmetic, gpu_timeline, intervals, peaks
-- @by device
-- @needs work on GPUs; with window=step also training steps (ProfilerStep# or NVTX ranges named step)
-- @pass gpu
-- @plot bars y=run_id,rank,device,step x=sm_efficiency_pct
WITH twin_shapes AS (
    SELECT t.run_id, t.rank, t.device, t.stream, t.start_ns, t.correlation_id, f.blocks_per_sm, f.occupancy_pct
    FROM twins t JOIN full_kernels f
        ON f.run_id = t.run_id AND f.rank = t.rank AND f.device = t.device AND f.stream = t.full_stream
        AND f.start_ns = t.full_start_ns AND f.correlation_id = t.full_correlation_id
    WHERE t.kind = 'kernel'
),
shapes AS (
    SELECT
        t.track, k.start_ns, k.start_ns + greatest(coalesce(k.dur_ns, 0), 0) AS end_ns,
        coalesce(k.occupancy_pct, f.occupancy_pct) AS occupancy_pct,
        coalesce(k.blocks_per_sm, f.blocks_per_sm, k.grid_x::DOUBLE * k.grid_y * k.grid_z / d.sm_count) AS blocks_per_sm
    FROM kernels k
    JOIN gpu_tracks t ON t.run_id = k.run_id AND t.rank = k.rank AND t.device IS NOT DISTINCT FROM k.device
    LEFT JOIN run_devices d ON d.run_id = k.run_id
    LEFT JOIN twin_shapes f
        ON f.run_id = k.run_id AND f.rank = k.rank AND f.device = k.device AND f.stream = k.stream
        AND f.start_ns = k.start_ns AND f.correlation_id = k.correlation_id
),
sm_blocks AS (
    SELECT track, start_ns, end_ns, coalesce(greatest(blocks_per_sm, 0), 0) AS value FROM shapes
),
stretches AS (
    SELECT track, start_ns, end_ns, least(total, 1) AS efficiency FROM intervals_overlap_sum('sm_blocks') WHERE n > 0
),
filled AS (
    SELECT
        window_id, sum(end_ns - start_ns)::BIGINT AS kernel_ns, fsum((end_ns - start_ns) * efficiency) AS efficient_ns
    FROM intervals_clip('stretches', 'gpu_windows_{window}')
    GROUP BY window_id
),
occupied AS (
    SELECT
        window_id, count(blocks_per_sm) AS shaped,
        fsum((end_ns - start_ns) * occupancy_pct) / nullif(sum(end_ns - start_ns) FILTER (occupancy_pct >= 0), 0)
            AS occupancy_pct
    FROM intervals_clip('shapes', 'gpu_windows_{window}')
    WHERE occupancy_pct IS NULL OR occupancy_pct >= 0
    GROUP BY window_id
)
SELECT
    run_group, run_id, rank, device, step, w.end_ns - w.start_ns AS span_ns, coalesce(kernel_ns, 0) AS kernel_ns,
    pct(coalesce(kernel_ns, 0), w.end_ns - w.start_ns) AS utilization_pct,
    CASE WHEN shaped > 0 THEN pct(efficient_ns, w.end_ns - w.start_ns) END AS sm_efficiency_pct,
    occupancy_pct
FROM gpu_windows_{window} w
JOIN gpu_tracks USING (track)
LEFT JOIN filled USING (window_id)
LEFT JOIN occupied USING (window_id)
