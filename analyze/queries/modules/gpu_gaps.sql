-- Gaps in the work of a GPU or of a stream, and their causes.
-- @use gpu_timeline, intervals

-- @view stream_idle  a row is a gap of a stream: time between its first start and its last end without work.
-- Work of 0 ns only counts at the first start and the last end of a stream.
-- @column * of gpu_idle
CREATE VIEW stream_idle AS
WITH _work AS (
    SELECT
        t.track, w.stream, w.run_id, w.rank, w.correlation_id, greatest(w.start_ns, t.common_start_ns) AS start_ns,
        w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) AS end_ns, w.call_start_ns AS launch_ns,
        w.call_start_ns + w.call_dur_ns AS launched_ns, w.call_tid AS launch_tid
    FROM gpu_work w
    JOIN gpu_tracks t ON t.run_id = w.run_id AND t.rank = w.rank AND t.device IS NOT DISTINCT FROM w.device
    WHERE coalesce(w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) > t.common_start_ns, true)
),
_lanes AS MATERIALIZED (
    SELECT
        row_number() OVER (ORDER BY track, stream)::INTEGER AS lane, track, stream, any_value(run_id) AS run_id,
        any_value(rank) AS rank, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM _work
    GROUP BY track, stream
),
_running AS (
    SELECT *, max(track_ns(lane, end_ns)) OVER (ROWS UNBOUNDED PRECEDING) AS furthest
    FROM (
        SELECT l.lane, w.start_ns, w.end_ns, w.correlation_id, w.launch_ns, w.launched_ns, w.launch_tid
        FROM _work w JOIN _lanes l ON l.track = w.track AND l.stream IS NOT DISTINCT FROM w.stream
        WHERE w.end_ns > w.start_ns OR w.start_ns IN (l.first_ns, l.last_ns)
        -- Correlation ids are in the order of calls; 0 is no id.
        ORDER BY l.lane, w.start_ns, coalesce(w.correlation_id <= 0, true), w.correlation_id
    )
),
_reached AS (
    SELECT * EXCLUDE (furthest, end_ns), ns_on_track(lane, lag(furthest) OVER ()) AS previous_end_ns FROM _running
)
SELECT
    lane, track, stream, run_id, rank, correlation_id, previous_end_ns AS start_ns, r.start_ns AS end_ns, launch_ns,
    launched_ns, launch_tid
FROM _reached r JOIN (SELECT lane, track, stream, run_id, rank FROM _lanes) USING (lane)
WHERE r.start_ns > previous_end_ns;

-- @macro gap_launches(g)  gaps of gpu_idle or stream_idle with the launch call of the work that ends them, and the time
--   of the profiler in them.
-- Profiler time counts if it is on the thread of the launch call, or on a thread without other events (CUPTI may number
-- threads differently).
-- @columns track
-- @column stream id               Stream; NULL per device.
-- @column correlation_id id       Correlation id of the work that ends the gap; of several, the one launched first.
-- @columns start_ns, end_ns
-- @column launch_ns ns            Start of the call that launched that work; NULL if not recorded.
-- @column launch_tid id           Thread of that call; NULL if not recorded.
-- @column profiler_ns ns          Time of the profiler itself in the gap, up to the return of that call.
-- @column alone bool              Whether nothing else on the GPUs can hold the next work back: it is a gap of a
--                                 device, the only one of its process, in a GPU-only block.
CREATE MACRO gap_launches(g) AS TABLE
WITH _gaps AS MATERIALIZED (
    SELECT * FROM query_table(g)
),
_lanes_of_gaps AS (
    SELECT DISTINCT lane, run_id, rank FROM _gaps
),
_overhead AS (
    SELECT l.lane AS track, o.tid, o.start_ns, o.start_ns + o.dur_ns AS end_ns
    FROM profiler_overhead o JOIN _lanes_of_gaps l USING (run_id, rank)
),
-- Gaps that may contain profiler time: they begin or end in the same bin of time, or are longer than a bin. A bin is
-- 2^20 ns (1 ms), or longer if the profiler's ranges would need too many.
_cell_length AS (
    SELECT greatest(20, ceil(log2(greatest(sum(end_ns - start_ns), 1) / (65536 + 4 * count(*)))))::INTEGER AS shift
    FROM _overhead
),
_overhead_cells AS (
    SELECT DISTINCT track, unnest(range(start_ns >> shift, (end_ns >> shift) + 1)) AS cell FROM _overhead, _cell_length
),
_overhead_gaps AS (
    SELECT
        lane AS track, start_ns AS window_id, start_ns, least(end_ns, coalesce(launched_ns, end_ns)) AS end_ns,
        launch_tid
    FROM _gaps, _cell_length
    WHERE coalesce(launched_ns > start_ns, true) AND (
        end_ns - start_ns >= 1::BIGINT << shift
        OR (lane, start_ns >> shift) IN (SELECT (track, cell) FROM _overhead_cells)
        OR (lane, end_ns >> shift) IN (SELECT (track, cell) FROM _overhead_cells)
    )
),
_pieces AS (
    SELECT
        g.track AS lane, g.start_ns AS gap_ns, p.start_ns, p.end_ns,
        max(p.end_ns) OVER (
            PARTITION BY g.track, g.start_ns ORDER BY p.start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS previous_end_ns
    FROM intervals_clip('_overhead', '_overhead_gaps') p
    JOIN _overhead_gaps g ON g.track = p.track AND g.window_id = p.window_id
    WHERE p.tid IS NULL OR p.tid = g.launch_tid IS NOT FALSE
),
_profiled AS (
    SELECT lane, gap_ns, sum(added_coverage_ns(start_ns, end_ns, previous_end_ns))::BIGINT AS ns
    FROM _pieces
    GROUP BY lane, gap_ns
),
_only_gpus AS (
    SELECT any_value(track) AS track
    FROM gpu_tracks JOIN (SELECT run_id, profiler FROM runs) USING (run_id)
    WHERE profiler = 'gpu'
    GROUP BY run_id, rank
    HAVING count(*) = 1
)
SELECT
    g.track, g.stream, g.correlation_id, g.start_ns, g.end_ns, g.launch_ns, g.launch_tid,
    coalesce(p.ns, 0) AS profiler_ns, g.stream IS NULL AND o.track IS NOT NULL AS alone
FROM _gaps g
LEFT JOIN _profiled p ON p.lane = g.lane AND p.gap_ns = g.start_ns
LEFT JOIN _only_gpus o ON o.track = g.track;

-- @view device_gaps  a row is a gap of a device, with the launch call of the next work.
-- @column * of gap_launches
CREATE VIEW device_gaps AS SELECT * FROM gap_launches('gpu_idle');

-- @view stream_gaps  a row is a gap of a stream, with the launch call of the next work.
-- @column * of gap_launches
CREATE VIEW stream_gaps AS
WITH _stream_gaps AS MATERIALIZED (
    SELECT * FROM stream_idle
)
SELECT * FROM gap_launches('_stream_gaps');

-- @macro idle_cause(start_ns, end_ns, launch_ns, alone, threshold_ns)  the cause of a gap: host_wait if nothing was
--   queued at its start; kernel_wait if the next work was queued and the gap is shorter than the threshold; else other,
--   also without a known launch call.
-- A GPU-only block has no launch calls. There, a gap of the only GPU of a process is host_wait from 10 us on: nothing
-- on the GPU can hold the next work back, and work that is queued begins sooner. On H100s, 99 % of the gaps before
-- queued work are shorter than 13 us, and 99 % of the time before work that was launched late is in gaps above 10 us.
CREATE MACRO idle_cause(start_ns, end_ns, launch_ns, alone, threshold_ns) AS CASE
    WHEN launch_ns > start_ns THEN 'host_wait'
    WHEN launch_ns IS NULL AND alone AND end_ns - start_ns >= 10000 THEN 'host_wait'
    WHEN launch_ns IS NOT NULL AND end_ns - start_ns < threshold_ns THEN 'kernel_wait'
    ELSE 'other'
END;

-- @macro gap_cause(start_ns, end_ns, launch_ns, alone, profiler_ns, threshold_ns)  idle_cause, or profiler if the
--   profiler worked for more than half of the gap.
CREATE MACRO gap_cause(start_ns, end_ns, launch_ns, alone, profiler_ns, threshold_ns) AS CASE
    WHEN 2 * profiler_ns > end_ns - start_ns THEN 'profiler'
    ELSE idle_cause(start_ns, end_ns, launch_ns, alone, threshold_ns)
END;
