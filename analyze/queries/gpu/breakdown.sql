-- What does each GPU spend its time on: compute, communication, copies or nothing?
--
-- Every nanosecond of the window counts once: as compute if any kernel runs that is not communication; else as exposed
-- communication; else, if a memcpy or memset runs, as exposed memcpy; else as idle. The four add up to the window
-- exactly. The window is the span (first start to last end) or a step: from its start on the CPU to the start of the
-- next step. The last step ends with its range, or with the last GPU work launched in it if that is later. In a step,
-- the GPU may still run work of the previous step. Windows begin when all ranks have begun to record (if they began
-- more than 1 ms apart), and contain no waiting in a cold first call of a process group (the first call, if it has more
-- than 90 % of the waiting in five or more calls).
--
-- The profiler makes steps longer, and most of what it adds is idle time. If the collector timed steps without the
-- profiler, the idle time of an undisturbed step is that step less the busy time of a recorded step. Both are means
-- over the steps.
-- @param window span|step = span  What a row is: the whole recording, or a training step.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column step index              Training step; empty for the whole span.
-- @column span_ns ns              Length of the window, without excluded_ns.
-- @column excluded_ns ns          Time that is left out as an artifact of the recording: before all ranks had begun to
--                                 record, and waiting in a cold first call.
-- @column compute_ns ns           Union of compute kernels.
-- @column exposed_comm_ns ns      Communication without concurrent compute.
-- @column exposed_memcpy_ns ns    Memcpys and memsets without a concurrent kernel.
-- @column undisturbed_ns ns       Window without the profiler: its recorded steps x mean undisturbed step; empty if
--                                 none was timed.
-- @column undisturbed_idle_ns ns  The same, less the busy time of the recorded steps; 0 at least.
-- @column idle_ns ns              Time without any work, as recorded.
-- @column compute_pct %           Share of the span.
-- @column exposed_comm_pct %      Share of the span.
-- @column exposed_memcpy_pct %    Share of the span.
-- @column undisturbed_idle_pct %  undisturbed_idle_ns / undisturbed_ns.
-- @column idle_pct %              Share of the span, as recorded.
-- @main run_id, rank, device, step, span_ns, compute_pct, exposed_comm_pct, exposed_memcpy_pct, undisturbed_idle_pct,
--     idle_pct
-- @order run_id, rank, device, step
-- @use arithmetic, gpu_timeline
-- @by device
-- @needs work on GPUs; with window=step also training steps (ProfilerStep# or NVTX ranges named step)
-- @pass gpu
-- @disturbed idle time
-- @plot bars y=run_id,rank,device,step x=compute_pct,exposed_comm_pct,exposed_memcpy_pct,idle_pct top=64
-- @drill rank timeline rank={rank} device={device}
-- @drill step critical-path window=step group=name step={step} rank={rank}
-- @drill exposed_comm_ns stragglers rank={rank}
-- @drill exposed_comm_pct stragglers rank={rank}
-- @drill exposed_memcpy_ns copies rank={rank} device={device}
-- @drill exposed_memcpy_pct copies rank={rank} device={device}
-- @drill idle_ns idle-causes rank={rank} device={device}
-- @drill idle_pct idle-causes rank={rank} device={device}
WITH lengths AS (
    SELECT window_id, busy_ns, kernel_ns, compute_ns, cold_ns FROM gpu_lengths_{window}
),
parts AS (
    SELECT
        w.track, w.step, u.undisturbed_ns, u.undisturbed_idle_ns,
        w.end_ns - w.start_ns - coalesce(cold_ns, 0) AS span_ns,
        coalesce(late_start_ns, 0) + coalesce(cold_ns, 0) AS excluded_ns,
        coalesce(compute_ns, 0) AS compute_ns,
        coalesce(kernel_ns - compute_ns, 0) AS exposed_comm_ns,
        coalesce(busy_ns - kernel_ns, 0) AS exposed_memcpy_ns,
        w.end_ns - w.start_ns - coalesce(busy_ns, 0) - coalesce(cold_ns, 0) AS idle_ns
    FROM gpu_windows_{window} w
    LEFT JOIN lengths USING (window_id)
    LEFT JOIN gpu_undisturbed_{window} u USING (window_id)
)
SELECT
    run_group, run_id, rank, device, step, span_ns, excluded_ns, compute_ns, exposed_comm_ns, exposed_memcpy_ns,
    undisturbed_ns, undisturbed_idle_ns, idle_ns,
    pct(compute_ns, span_ns) AS compute_pct,
    pct(exposed_comm_ns, span_ns) AS exposed_comm_pct,
    pct(exposed_memcpy_ns, span_ns) AS exposed_memcpy_pct,
    pct(undisturbed_idle_ns, undisturbed_ns) AS undisturbed_idle_pct,
    pct(idle_ns, span_ns) AS idle_pct
FROM parts JOIN gpu_tracks USING (track)
