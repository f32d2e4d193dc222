-- The windows in which GPU time is divided up, and how long each GPU does what in them: the whole span, or the steps.
-- @use gpu_tracks, intervals, step_ranges
-- @view gpu_windows_span  a row is a GPU of a process.
-- @column window_id index       Its track's number.
-- @column track index           The track that it stands on.
-- @column step index            NULL.
-- @column start_ns ns           First start.
-- @column end_ns ns             Last end.
CREATE VIEW gpu_windows_span AS
SELECT track AS window_id, track, NULL::INTEGER AS step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM gpu_timeline
GROUP BY track;

-- @view gpu_windows_step  a row is a step on a GPU of its process.
-- @column window_id index       Its number.
-- @column track index           The track that it stands on.
-- @column step index            Step number.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW gpu_windows_step AS
SELECT
    row_number() OVER (ORDER BY t.track, s.start_ns)::INTEGER AS window_id, t.track, s.step, s.start_ns, s.end_ns
FROM step_windows s JOIN gpu_tracks t USING (run_id, rank);

-- @macro gpu_lengths(t)  how long a GPU does what in each window.
-- `t` has `window_id` beside the columns of gpu_timeline.
-- @column window_id index       The window.
-- @column span_ns ns            All of it.
-- @column busy_ns ns            All work.
-- @column kernel_ns ns          Kernels.
-- @column compute_ns ns         Compute kernels.
-- @column comm_ns ns            Communication kernels.
-- @column copy_ns ns            Memcpys and memsets.
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

-- @view gpu_segments_span  a row is a segment of a GPU.
-- @column * of gpu_timeline
-- @column window_id index       Its window in gpu_windows_span.
CREATE VIEW gpu_segments_span AS SELECT *, track AS window_id FROM gpu_timeline;

-- @view gpu_segments_step  a row is a segment of a GPU that is busy, in a step, cut at its edges.
-- @column * of gpu_timeline
-- @column window_id index       Its window in gpu_windows_step.
CREATE VIEW gpu_segments_step AS
WITH _busy AS (
    SELECT * FROM gpu_timeline WHERE kernels + copies > 0
)
SELECT * FROM intervals_cut('_busy', 'gpu_windows_step');

-- @view gpu_lengths_span  a row is a GPU of a process: how long it does what in the whole recording.
-- @column * of gpu_lengths
CREATE VIEW gpu_lengths_span AS SELECT * FROM gpu_lengths('gpu_segments_span');

-- @view gpu_lengths_step  a row is a step on a GPU of its process: how long it does what in it.
-- @column * of gpu_lengths
CREATE VIEW gpu_lengths_step AS SELECT * FROM gpu_lengths('gpu_segments_step');
