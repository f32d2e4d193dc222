-- What do replays of CUDA graphs cost, and how much do they differ?
--
-- A replay is one launch of a graph (cudaGraphLaunch) with all GPU work of its correlation id on a device. Recordings
-- do not name graphs: replays with the same kernel, copy and fill names, each as often, are of one graph; graphs are
-- numbered by their first replay. The span of a replay is from its first start to its last end. Its gaps are the time
-- in the span without work of the replay. Launches without recorded GPU work have no device.
-- @param per graph|replay = graph What a row is.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column graph index             Graph of the device, from 1.
-- @column replay index            Replay of the graph, from 1; empty for per=graph.
-- @column replays count           Replays.
-- @column kernels count           Kernels in them.
-- @column copies count            Memcpys and memsets in them.
-- @column kernels_per_replay number   Mean number of kernels of a replay.
-- @column call_ns ns              Time in the launch calls.
-- @column span_ns ns              Sum of the spans.
-- @column busy_ns ns              Time in the spans with work of the replay.
-- @column gap_ns ns               span_ns - busy_ns.
-- @column gap_pct %               Share of span_ns.
-- @column min_span_ns ns          Shortest span.
-- @column median_span_ns ns       Median.
-- @column max_span_ns ns          Longest.
-- @column variation_pct %         Standard deviation / mean of the spans; empty for one replay.
-- @column avg_queue_delay_ns ns   Mean time from the end of the launch call to the first start, at least 0.
-- @column device_time_pct %       Share of the durations of all GPU work of the device.
-- @main run_id, rank, device, graph, replays, kernels_per_replay, median_span_ns, gap_pct, variation_pct
-- @order run_id, rank, device, graph, replay
-- @use arithmetic, intervals
-- @needs replays of CUDA graphs (the calls that launch them, and what ran)
-- @full launch calls
-- @plot bars y=run_id,rank,device,graph,replay x=busy_ns,gap_ns
WITH work AS (
    SELECT
        run_group, run_id, rank, device, correlation_id, call_start_ns, call_dur_ns AS call_ns, kind, name, start_ns,
        start_ns + dur_ns AS end_ns, dur_ns
    FROM gpu_work
    WHERE contains(call_name, 'GraphLaunch')
    UNION ALL BY NAME
    SELECT run_group, run_id, rank, correlation_id, start_ns AS call_start_ns, dur_ns AS call_ns
    FROM launches_without_work
    WHERE contains(name, 'GraphLaunch')
),
launched AS (
    SELECT
        run_group, run_id, rank, device, correlation_id, call_start_ns, call_ns,
        count(*) FILTER (kind = 'kernel') AS kernels, count(*) FILTER (kind <> 'kernel') AS copies,
        min(start_ns) AS first_start_ns, max(end_ns) - min(start_ns) AS length_ns, sum(dur_ns)::BIGINT AS work_ns,
        list_sort(list(name)) AS names
    FROM work
    GROUP BY ALL
),
named AS (
    SELECT
        * EXCLUDE (names), min(turn) OVER (PARTITION BY run_id, rank, device, names) AS first_turn, turn AS track
    FROM (SELECT *, row_number() OVER (ORDER BY call_start_ns, correlation_id)::INTEGER AS turn FROM launched)
),
numbered AS (
    SELECT
        *, CASE WHEN device IS NOT NULL
            THEN dense_rank() OVER (PARTITION BY run_id, rank, device ORDER BY first_turn) END AS graph,
        row_number() OVER (PARTITION BY run_id, rank, device, first_turn ORDER BY turn) AS nth
    FROM named
),
tracks AS (
    SELECT r.track, w.start_ns, w.end_ns
    FROM work w JOIN numbered r USING (run_id, rank, device, correlation_id)
),
all_work AS (
    SELECT run_id, rank, device, sum(dur_ns)::BIGINT AS all_ns FROM gpu_work GROUP BY ALL
)
SELECT
    run_group, r.run_id, r.rank, r.device, graph, CASE WHEN '{per}' = 'replay' THEN nth END AS replay,
    count(*) AS replays, sum(kernels)::BIGINT AS kernels, sum(copies)::BIGINT AS copies,
    avg(kernels) AS kernels_per_replay, sum(call_ns)::BIGINT AS call_ns,
    coalesce(sum(length_ns), 0)::BIGINT AS span_ns, coalesce(sum(covered_ns), 0)::BIGINT AS busy_ns,
    coalesce(sum(length_ns - covered_ns), 0)::BIGINT AS gap_ns,
    pct(sum(length_ns - covered_ns), sum(length_ns)) AS gap_pct,
    min(length_ns) AS min_span_ns, median(length_ns) AS median_span_ns,
    max(length_ns) AS max_span_ns,
    CASE WHEN count(*) > 1 THEN variation_pct(length_ns) END AS variation_pct,
    avg(at_least_0(first_start_ns - call_start_ns - call_ns)) AS avg_queue_delay_ns,
    pct(sum(work_ns), any_value(all_ns)) AS device_time_pct
FROM numbered r
LEFT JOIN intervals_coverage('tracks') USING (track)
LEFT JOIN all_work a ON a.run_id = r.run_id AND a.rank = r.rank AND a.device = r.device
GROUP BY run_group, r.run_id, r.rank, r.device, graph, replay
