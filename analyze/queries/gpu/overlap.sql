-- How much of the communication runs beside compute?
--
-- The share of the time with communication kernels on a GPU in which compute kernels run there too; the rest is what
-- `breakdown` calls exposed. Copies count for neither side.
-- @param window span|step = span  What a row is: the whole recording, or a training step (as in breakdown).
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column step index              Training step; empty for the whole span.
-- @column comm_ns ns              Union of communication kernels.
-- @column overlapped_ns ns        The part of it with compute kernels beside it.
-- @column overlap_pct %           Share of comm_ns; empty without communication.
-- @main run_id, rank, device, step, comm_ns, overlapped_ns, overlap_pct
-- @order run_id, rank, device, step
-- @use arithmetic, gpu_classes, gpu_tracks, gpu_windows
-- @needs work on GPUs; with window=step also training steps (ProfilerStep# or NVTX ranges named step)
-- @plot bars y=run_id,rank,device,step x=overlap_pct
WITH lengths AS (
    SELECT window_id, comm_ns, comm_ns + compute_ns - kernel_ns AS overlapped_ns
    FROM gpu_class_lengths('gpu_pieces_{window}')
)
SELECT
    run_group, run_id, rank, device, step,
    coalesce(comm_ns, 0) AS comm_ns, coalesce(overlapped_ns, 0) AS overlapped_ns,
    pct(overlapped_ns, comm_ns) AS overlap_pct
FROM gpu_windows_{window} w
JOIN gpu_tracks USING (track)
LEFT JOIN lengths USING (window_id)
