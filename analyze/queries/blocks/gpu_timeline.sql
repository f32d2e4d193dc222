-- What each GPU does when: `gpu_segments` on tracks, idle time, and the length of each activity per window (the whole
-- span, or a training step).
-- @use intervals, steps

-- @table gpu_tracks  a row is a GPU of a process: a number is faster to sort and join than run, rank and device.
-- @column track index             Its number.
-- @columns run_id, rank, device, run_group
-- @column first_ns ns             First start of its work.
-- @column last_ns ns              Last end of its work.
CREATE TABLE gpu_tracks AS
SELECT
    row_number() OVER (ORDER BY run_id, rank, device)::INTEGER AS track, run_id, rank, device, run_group,
    min(start_ns) AS first_ns, max(start_ns + dur_ns) AS last_ns
FROM gpu_segments
GROUP BY run_id, rank, device, run_group;

-- @view gpu_timeline  a row is a segment of `gpu_segments` with its track.
-- @columns track, start_ns, end_ns
-- @column compute_kernels count   Compute kernels that run.
-- @column comm_kernels count      Communication kernels that run.
-- @column memcpys count           Memcpys that run.
-- @column memsets count           Memsets that run.
-- @column kernels count           Kernels that run.
-- @column copies count            Memcpys and memsets that run.
CREATE VIEW gpu_timeline AS
SELECT
    t.track, s.start_ns, s.start_ns + s.dur_ns AS end_ns, s.compute_kernels, s.comm_kernels, s.memcpys, s.memsets,
    s.compute_kernels + s.comm_kernels AS kernels, s.memcpys + s.memsets AS copies
FROM gpu_segments s
JOIN gpu_tracks t ON t.run_id = s.run_id AND t.rank = s.rank AND t.device IS NOT DISTINCT FROM s.device;

-- @view gpu_idle  a row is a gap of a device: time between its first start and its last end without work.
-- @column lane index              The track; in stream_idle a number of the stream.
-- @columns track
-- @column stream id               NULL; in stream_idle the CUDA stream.
-- @columns run_id, rank
-- @column correlation_id id       Correlation id of the work that ends the gap; of several, the one launched first.
-- @columns start_ns, end_ns
-- @column launch_ns ns            Start of the call that launched that work; NULL if not recorded.
-- @column launched_ns ns          End of that call.
-- @column launch_tid id           Thread of that call; NULL if not recorded.
CREATE VIEW gpu_idle AS
SELECT
    t.track AS lane, t.track, NULL::BIGINT AS stream, t.run_id, t.rank, s.next_correlation_id AS correlation_id,
    s.start_ns, s.start_ns + s.dur_ns AS end_ns, s.next_call_start_ns AS launch_ns,
    s.next_call_start_ns + s.next_call_dur_ns AS launched_ns, s.next_call_tid AS launch_tid
FROM gpu_segments s
JOIN gpu_tracks t ON t.run_id = s.run_id AND t.rank = s.rank AND t.device IS NOT DISTINCT FROM s.device
WHERE s.dur_ns > 0 AND s.compute_kernels + s.comm_kernels + s.memcpys + s.memsets = 0;

-- @view gpu_windows_span  a row is a GPU of a process: its span.
-- @column window_id index         Its track's number.
-- @columns track
-- @column step index              NULL.
-- @column start_ns ns             First start.
-- @column end_ns ns               Last end.
CREATE VIEW gpu_windows_span AS
SELECT track AS window_id, track, NULL::INTEGER AS step, first_ns AS start_ns, last_ns AS end_ns FROM gpu_tracks;

-- @view gpu_windows_step  a row is a training step on a GPU of its process.
-- @column window_id index         Its number.
-- @columns track
-- @column step index              Step number.
-- @columns start_ns, end_ns
CREATE VIEW gpu_windows_step AS
SELECT
    row_number() OVER (ORDER BY t.track, s.start_ns)::INTEGER AS window_id, t.track, s.step, s.start_ns, s.end_ns
FROM step_windows s JOIN gpu_tracks t USING (run_id, rank);

-- @macro gpu_lengths(t)  the time of each activity per window, from a table like gpu_timeline with `window_id`.
-- @column window_id index         The window.
-- @column span_ns ns              All of it.
-- @column busy_ns ns              All work.
-- @column kernel_ns ns            Kernels.
-- @column compute_ns ns           Compute kernels.
-- @column comm_ns ns              Communication kernels.
-- @column copy_ns ns              Memcpys and memsets.
CREATE MACRO gpu_lengths(t) AS TABLE
SELECT
    window_id, sum(end_ns - start_ns)::BIGINT AS span_ns,
    coalesce(sum(end_ns - start_ns) FILTER (kernels + copies > 0), 0)::BIGINT AS busy_ns,
    coalesce(sum(end_ns - start_ns) FILTER (kernels > 0), 0)::BIGINT AS kernel_ns,
    coalesce(sum(end_ns - start_ns) FILTER (compute_kernels > 0), 0)::BIGINT AS compute_ns,
    coalesce(sum(end_ns - start_ns) FILTER (comm_kernels > 0), 0)::BIGINT AS comm_ns,
    coalesce(sum(end_ns - start_ns) FILTER (copies > 0), 0)::BIGINT AS copy_ns
FROM query_table(t)
GROUP BY window_id;

-- @view gpu_segments_span  a row is a segment of a GPU with its window in gpu_windows_span.
-- @column * of gpu_timeline
-- @column window_id index         Its window in gpu_windows_span.
CREATE VIEW gpu_segments_span AS SELECT *, track AS window_id FROM gpu_timeline;

-- @view gpu_segments_step  a row is a busy segment of a GPU, clipped to a training step.
-- @column * of gpu_timeline
-- @column window_id index         Its window in gpu_windows_step.
CREATE VIEW gpu_segments_step AS
WITH _busy AS (
    SELECT * FROM gpu_timeline WHERE kernels + copies > 0
)
SELECT * FROM intervals_clip('_busy', 'gpu_windows_step');

-- @view gpu_lengths_span  a row is a GPU of a process: the time of each activity in the whole recording.
-- @column * of gpu_lengths
CREATE VIEW gpu_lengths_span AS SELECT * FROM gpu_lengths('gpu_segments_span');

-- @view gpu_lengths_step  a row is a training step on a GPU: the time of each activity.
-- @column * of gpu_lengths
CREATE VIEW gpu_lengths_step AS SELECT * FROM gpu_lengths('gpu_segments_step');

-- @view gpu_undisturbed_span  a row is a GPU of a process whose undisturbed steps were timed: its recorded steps, as
--   long as they are without the profiler.
-- @column window_id index         Its window in gpu_windows_span.
-- @column steps count             Recorded steps.
-- @column undisturbed_ns ns       Recorded steps x mean undisturbed step.
-- @column undisturbed_idle_ns ns  The same, less the busy time of the recorded steps; 0 at least.
-- @column recorded_ns ns          The recorded steps: all their windows.
-- @column recorded_idle_ns ns     The same, less their busy time.
CREATE VIEW gpu_undisturbed_span AS
WITH _recorded AS (
    SELECT
        t.track, count(*) AS steps, count(*) * any_value(c.undisturbed_step_ns) AS undisturbed_ns,
        min(s.start_ns) AS first_ns, max(s.end_ns) AS last_ns
    FROM gpu_tracks t
    JOIN step_windows s USING (run_id, rank)
    JOIN (SELECT run_id, rank, undisturbed_step_ns FROM step_costs) c USING (run_id, rank)
    WHERE c.undisturbed_step_ns IS NOT NULL
    GROUP BY t.track
),
_busy AS (
    SELECT track, sum(least(end_ns, last_ns) - greatest(start_ns, first_ns))::BIGINT AS busy_ns
    FROM gpu_timeline JOIN _recorded USING (track)
    WHERE kernels + copies > 0 AND end_ns > first_ns AND start_ns < last_ns
    GROUP BY track
)
SELECT
    track AS window_id, steps, undisturbed_ns,
    greatest(undisturbed_ns - coalesce(busy_ns, 0), 0) AS undisturbed_idle_ns, last_ns - first_ns AS recorded_ns,
    last_ns - first_ns - coalesce(busy_ns, 0) AS recorded_idle_ns
FROM _recorded LEFT JOIN _busy USING (track);

-- @view gpu_undisturbed_step  a row is a training step on a GPU of a process whose undisturbed steps were timed.
-- All steps have the mean: the CPU runs ahead, so the window of a step has work of others.
-- @column window_id index         Its window in gpu_windows_step.
-- @column undisturbed_ns ns       Mean undisturbed step.
-- @column undisturbed_idle_ns ns  The same, less the mean busy time of the recorded steps; 0 at least.
CREATE VIEW gpu_undisturbed_step AS
SELECT
    w.window_id, u.undisturbed_ns // u.steps AS undisturbed_ns,
    round(u.undisturbed_idle_ns / u.steps)::BIGINT AS undisturbed_idle_ns
FROM gpu_windows_step w JOIN gpu_undisturbed_span u ON u.window_id = w.track;
