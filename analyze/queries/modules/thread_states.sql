-- What CPU threads do, from Nsight Systems: on a core or not, and in which call of the operating system's library.
-- @use gpu_gaps, gpu_timeline, intervals

-- @view thread_runs  a row is a stretch of time of a thread on a core.
-- If the thread's first switch is off a core, the first row begins with the recording of the rank. If its last switch
-- is onto a core, the last row ends with the recording.
-- @columns run_id, rank
-- @column tid id                  The thread.
-- @column cpu index               The core.
-- @columns start_ns, end_ns
CREATE VIEW thread_runs AS
WITH _recordings AS (
    SELECT run_id, rank, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM (
        SELECT run_id, rank, start_ns, start_ns AS end_ns FROM thread_switches
        UNION ALL
        SELECT run_id, rank, start_ns, start_ns + dur_ns FROM os_calls
        UNION ALL
        SELECT run_id, rank, start_ns, start_ns + dur_ns FROM cuda_calls
    )
    GROUP BY run_id, rank
),
_switches AS (
    SELECT *, row_number() OVER thread AS place, lead(start_ns) OVER thread AS next_ns
    FROM thread_switches JOIN _recordings USING (run_id, rank)
    WINDOW thread AS (PARTITION BY run_id, rank, tid ORDER BY start_ns, is_in)
),
_runs AS (
    SELECT run_id, rank, tid, cpu, start_ns, coalesce(next_ns, last_ns) AS end_ns FROM _switches WHERE is_in
    UNION ALL
    SELECT run_id, rank, tid, cpu, first_ns, start_ns FROM _switches WHERE NOT is_in AND place = 1
)
SELECT * FROM _runs WHERE end_ns > start_ns;

-- @view thread_spans  a row is a thread with an id, from its first context switch or call to its last.
-- @columns run_group, run_id, rank
-- @column tid id                  The thread.
-- @columns start_ns, end_ns
CREATE VIEW thread_spans AS
SELECT run_group, run_id, rank, tid, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM (
    SELECT run_group, run_id, rank, tid, start_ns, start_ns AS end_ns FROM thread_switches
    UNION ALL
    SELECT run_group, run_id, rank, tid, start_ns, start_ns + dur_ns FROM os_calls
)
WHERE tid > 0
GROUP BY run_group, run_id, rank, tid;

-- @view host_waits  a row is a gap of a GPU that ends with work whose launch call began after the gap did: nothing was
--   queued, so what the launching thread did meanwhile is why the GPU was idle.
-- @columns track, run_group, run_id, rank, device
-- @column tid id                  The launching thread.
-- @columns start_ns
-- @column end_ns ns               When it began to launch.
CREATE VIEW host_waits AS
SELECT
    g.track, t.run_group, t.run_id, t.rank, t.device, launch_tid AS tid, g.start_ns,
    least(g.end_ns, launch_ns) AS end_ns
FROM device_gaps g JOIN gpu_tracks t USING (track)
WHERE launch_ns > g.start_ns;

-- @macro thread_activities(w)  what threads do in windows of time: `w` has window_id, lane, run_id, rank, tid, start_ns
--   and end_ns; the windows of a thread in a lane are disjoint. The rows of a window add up to its length. Rows with a
--   function have no time of their own: they count its samples.
-- @column window_id index         The window.
-- @column state text              on a core or waiting (off a core); NULL if no context switches were recorded.
-- @column os_call text            Innermost call of the operating system's library; NULL for none.
-- @column function text           Innermost function of samples.
-- @column ns ns                   Time.
-- @column samples count           Samples in that function.
CREATE MACRO thread_activities(w) AS TABLE
WITH _threads AS MATERIALIZED (
    SELECT row_number() OVER () AS track, lane, run_id, rank, tid
    FROM (SELECT DISTINCT lane, run_id, rank, tid FROM query_table(w))
),
_thread_windows AS MATERIALIZED (
    SELECT track, window_id, w.start_ns, w.end_ns, run_id, rank
    FROM query_table(w) w JOIN _threads USING (lane, run_id, rank, tid)
),
_thread_calls AS MATERIALIZED (
    SELECT track, name, start_ns, start_ns + dur_ns AS end_ns FROM os_calls JOIN _threads USING (run_id, rank, tid)
),
_thread_runs AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM thread_runs JOIN _threads USING (run_id, rank, tid)
),
_window_calls AS MATERIALIZED (
    SELECT window_id AS track, name, start_ns, end_ns FROM intervals_clip('_thread_calls', '_thread_windows')
),
_window_runs AS MATERIALIZED (
    SELECT window_id AS track, row_number() OVER () AS window_id, start_ns, end_ns
    FROM intervals_clip('_thread_runs', '_thread_windows')
),
_window_pieces AS MATERIALIZED (
    SELECT track, name, start_ns, end_ns FROM intervals_innermost('_window_calls')
),
_called AS (
    SELECT track AS window_id, name, sum(end_ns - start_ns)::BIGINT AS ns FROM _window_pieces GROUP BY ALL
),
_called_on_core AS (
    SELECT track AS window_id, name, sum(end_ns - start_ns)::BIGINT AS ns
    FROM intervals_clip('_window_pieces', '_window_runs')
    GROUP BY ALL
),
_core AS (
    SELECT track AS window_id, sum(end_ns - start_ns)::BIGINT AS ns FROM _window_runs GROUP BY ALL
),
_thread_samples AS (
    SELECT track, start_ns AS at_ns, function FROM cpu_samples JOIN _threads USING (run_id, rank, tid)
),
_window_samples AS MATERIALIZED (
    SELECT inside.window_id AS track, at_ns, function
    FROM points_in_intervals('_thread_samples', '_thread_windows')
    WHERE inside IS NOT NULL AND function IS NOT NULL
),
_sampled AS (
    SELECT track AS window_id, inside.name AS name, function, count(*) AS samples
    FROM points_in_intervals('_window_samples', '_window_pieces')
    GROUP BY ALL
),
_by_call AS (
    SELECT w.window_id, c.name, c.ns, coalesce(o.ns, 0) AS on_ns
    FROM _thread_windows w
    JOIN _called c USING (window_id)
    LEFT JOIN _called_on_core o ON o.window_id = w.window_id AND o.name = c.name
),
_all_calls AS (
    SELECT window_id, sum(ns)::BIGINT AS ns, sum(on_ns)::BIGINT AS on_ns FROM _by_call GROUP BY ALL
),
_no_call AS (
    SELECT
        w.window_id, w.end_ns - w.start_ns - coalesce(a.ns, 0) AS ns, coalesce(c.ns, 0) - coalesce(a.on_ns, 0) AS on_ns
    FROM _thread_windows w LEFT JOIN _core c USING (window_id) LEFT JOIN _all_calls a USING (window_id)
),
_switched AS (
    SELECT DISTINCT run_id, rank FROM thread_switches
),
_call_times AS (
    FROM _by_call UNION ALL BY NAME FROM _no_call
),
_states AS (
    SELECT
        window_id, name, NULL AS function, 0 AS samples,
        unnest([{'is_on': true, 'ns': on_ns}, {'is_on': false, 'ns': ns - on_ns}], recursive := true)
    FROM _call_times
    UNION ALL BY NAME
    SELECT window_id, name, function, samples, true AS is_on, 0 AS ns FROM _sampled
)
SELECT
    window_id, CASE WHEN s.run_id IS NULL THEN NULL WHEN is_on THEN 'on a core' ELSE 'waiting' END AS state,
    name AS os_call, function, ns, samples
FROM _states
JOIN _thread_windows w USING (window_id)
LEFT JOIN _switched s ON s.run_id = w.run_id AND s.rank = w.rank
WHERE ns > 0 OR samples > 0;
