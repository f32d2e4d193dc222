-- How much of its time is each GPU busy?
--
-- The span of a device is from the start of its first kernel, memcpy or memset to the end of its last. Busy time is the
-- union of all work: concurrent work counts once. Busy + idle = span, exactly.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column span_ns ns              First start to last end.
-- @column busy_ns ns              Union of kernels, memcpys and memsets.
-- @column idle_ns ns              Span - busy time.
-- @column busy_pct %              Busy time / span.
-- @main run_id, rank, device, span_ns, busy_ns, idle_ns, busy_pct
-- @order run_id, rank, device
-- @use arithmetic, gpu_timeline
-- @by device
-- @needs work on GPUs
-- @pass gpu
-- @disturbed idle time
-- @plot bars y=run_id,rank,device x=busy_ns,idle_ns whole=yes top=64
-- @drill rank timeline rank={rank} device={device}
-- @drill idle_ns idle-causes rank={rank} device={device}
SELECT
    run_group, run_id, rank, device, span_ns, busy_ns, span_ns - busy_ns AS idle_ns, pct(busy_ns, span_ns) AS busy_pct
FROM gpu_lengths_span JOIN gpu_tracks ON track = window_id
