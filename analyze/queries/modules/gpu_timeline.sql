-- What each GPU does when: `gpu_segments` on tracks, idle time, and the length of each activity per window (the whole
-- span, or a training step). Time before all ranks had begun to record is left out, and waiting in cold first calls is
-- in no window (module `common_start`).
-- @use common_start, intervals, profiler_cost, steps

-- @table gpu_tracks  a row is a GPU of a process: a number is faster to sort and join than run, rank and device.
-- @column track index             Its number.
-- @columns run_id, rank, device, run_group
-- @column first_ns ns             First start of its work.
-- @column last_ns ns              Last end of its work.
-- @column common_start_ns ns      When all ranks had begun to record; NULL if they began together.
CREATE TABLE gpu_tracks AS
SELECT
    row_number() OVER (ORDER BY run_id, rank, device)::INTEGER AS track, run_id, rank, device, run_group, first_ns,
    last_ns, common_start_ns
FROM gpu_spans LEFT JOIN (SELECT run_id, rank, common_start_ns FROM rank_starts) USING (run_id, rank);

-- @view gpu_timeline  a row is a segment of `gpu_segments` with its track, from when all ranks had begun to record.
-- @columns track, start_ns, end_ns
-- @column compute_kernels count   Compute kernels that run.
-- @column comm_kernels count      Communication kernels that run.
-- @column memcpys count           Memcpys that run.
-- @column memsets count           Memsets that run.
-- @column kernels count           Kernels that run.
-- @column copies count            Memcpys and memsets that run.
CREATE VIEW gpu_timeline AS
SELECT
    t.track, greatest(s.start_ns, t.common_start_ns) AS start_ns, s.start_ns + s.dur_ns AS end_ns, s.compute_kernels,
    s.comm_kernels, s.memcpys, s.memsets,
    s.compute_kernels + s.comm_kernels AS kernels, s.memcpys + s.memsets AS copies
FROM gpu_segments s
JOIN gpu_tracks t ON t.run_id = s.run_id AND t.rank = s.rank AND t.device IS NOT DISTINCT FROM s.device
WHERE coalesce(s.start_ns + s.dur_ns > t.common_start_ns, true);

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
    greatest(s.start_ns, t.common_start_ns) AS start_ns, s.start_ns + s.dur_ns AS end_ns,
    s.next_call_start_ns AS launch_ns, s.next_call_start_ns + s.next_call_dur_ns AS launched_ns,
    s.next_call_tid AS launch_tid
FROM gpu_segments s
JOIN gpu_tracks t ON t.run_id = s.run_id AND t.rank = s.rank AND t.device IS NOT DISTINCT FROM s.device
WHERE s.dur_ns > 0 AND coalesce(s.start_ns + s.dur_ns > t.common_start_ns, true)
    AND s.compute_kernels + s.comm_kernels + s.memcpys + s.memsets = 0;

-- @view gpu_windows_span  a row is a GPU of a process: its span.
-- @column window_id index         Its track's number.
-- @columns track
-- @column step index              NULL.
-- @column start_ns ns             First start; at the earliest when all ranks had begun to record.
-- @column end_ns ns               Last end.
-- @column late_start_ns ns        Time between the first start and that moment.
CREATE VIEW gpu_windows_span AS
SELECT
    track AS window_id, track, NULL::INTEGER AS step, greatest(first_ns, common_start_ns) AS start_ns,
    last_ns AS end_ns, greatest(common_start_ns - first_ns, 0) AS late_start_ns
FROM gpu_tracks;

-- @view gpu_windows_step  a row is a training step on a GPU of its process.
-- @column window_id index         Its number.
-- @columns track
-- @column step index              Step number.
-- @columns start_ns, end_ns
-- @column late_start_ns ns        Time of the step before all ranks had begun to record, which is left out.
CREATE VIEW gpu_windows_step AS
SELECT
    row_number() OVER (ORDER BY t.track, s.start_ns)::INTEGER AS window_id, t.track, s.step,
    greatest(s.start_ns, t.common_start_ns) AS start_ns, s.end_ns,
    greatest(t.common_start_ns - s.start_ns, 0) AS late_start_ns
FROM step_windows s JOIN gpu_tracks t USING (run_id, rank)
WHERE coalesce(s.end_ns > t.common_start_ns, true);

-- @table cold_waits  a row is an interval in which a GPU waits in a cold first call, without compute.
-- @columns track, start_ns, end_ns
CREATE TABLE cold_waits AS
WITH _cold AS (
    SELECT
        s.track, greatest(s.start_ns, c.start_ns) AS start_ns, least(s.end_ns, c.start_ns + c.wait_ns) AS end_ns
    FROM cold_kernels c
    JOIN gpu_tracks t ON t.run_id = c.run_id AND t.rank = c.rank AND t.device IS NOT DISTINCT FROM c.device
    JOIN gpu_timeline s ON s.track = t.track
    WHERE s.compute_kernels = 0 AND s.start_ns < c.start_ns + c.wait_ns AND s.end_ns > c.start_ns
)
SELECT track, start_ns, end_ns FROM intervals_union('_cold');

-- @view artificial_waits  a row is an interval in which a GPU communicates without compute, as an artifact of the
--   recording: before all ranks had begun to record, or in a cold first call.
-- @columns track, start_ns, end_ns
CREATE VIEW artificial_waits AS
SELECT t.track, s.start_ns, least(s.start_ns + s.dur_ns, t.common_start_ns) AS end_ns
FROM gpu_segments s
JOIN gpu_tracks t ON t.run_id = s.run_id AND t.rank = s.rank AND t.device IS NOT DISTINCT FROM s.device
WHERE s.start_ns < t.common_start_ns AND s.comm_kernels > 0 AND s.compute_kernels = 0
UNION ALL
SELECT track, start_ns, end_ns FROM cold_waits;

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
    SELECT * FROM gpu_timeline WHERE kernels > 0 OR copies > 0
)
SELECT * FROM intervals_clip('_busy', 'gpu_windows_step');

-- @view gpu_cold_span  a row is a GPU that waits in cold first calls.
-- @column window_id index         Its window in gpu_windows_span.
-- @column cold_ns ns              That waiting, without compute.
CREATE VIEW gpu_cold_span AS
SELECT track AS window_id, sum(end_ns - start_ns)::BIGINT AS cold_ns FROM cold_waits GROUP BY track;

-- @view gpu_cold_step  a row is a training step in which a GPU waits in cold first calls.
-- @column window_id index         Its window in gpu_windows_step.
-- @column cold_ns ns              That waiting, without compute.
CREATE VIEW gpu_cold_step AS
SELECT window_id, sum(end_ns - start_ns)::BIGINT AS cold_ns
FROM intervals_clip('cold_waits', 'gpu_windows_step')
GROUP BY window_id;

-- @macro gpu_lengths_without(lengths, cold)  lengths of windows without waiting in cold first calls.
-- @column * of gpu_lengths
-- @column cold_ns ns              That waiting, which the others do not contain.
CREATE MACRO gpu_lengths_without(lengths, cold) AS TABLE
SELECT
    * REPLACE (
        span_ns - coalesce(cold_ns, 0) AS span_ns, busy_ns - coalesce(cold_ns, 0) AS busy_ns,
        kernel_ns - coalesce(cold_ns, 0) AS kernel_ns, comm_ns - coalesce(cold_ns, 0) AS comm_ns,
        coalesce(cold_ns, 0) AS cold_ns
    )
FROM gpu_lengths(lengths) LEFT JOIN query_table(cold) USING (window_id);

-- @view gpu_lengths_span  a row is a GPU of a process: the time of each activity in the whole recording.
-- @column * of gpu_lengths_without
CREATE VIEW gpu_lengths_span AS SELECT * FROM gpu_lengths_without('gpu_segments_span', 'gpu_cold_span');

-- @view gpu_lengths_step  a row is a training step on a GPU: the time of each activity.
-- @column * of gpu_lengths_without
CREATE VIEW gpu_lengths_step AS SELECT * FROM gpu_lengths_without('gpu_segments_step', 'gpu_cold_step');

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
    WHERE (kernels > 0 OR copies > 0) AND end_ns > first_ns AND start_ns < last_ns
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
