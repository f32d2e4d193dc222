-- Kernels are shorter than their launch calls
--
-- Saving: Duration of the launch call minus GPU time, summed over the launches where this is positive, at most the idle
-- time; mean over the GPUs.
-- Overlaps: host-wait, blocking-calls, data-wait, dataparallel, optimizer
-- Of: idle time
-- Sure: host time
-- See: launch
-- Try: fuse them (torch.compile), CUDA graphs, or larger batches.
-- Try for CUDA graphs: capture these launches in the graph, too, or fuse them (torch.compile).
-- Try for compiled: torch.compile(mode='reduce-overhead') for CUDA graphs, or larger batches; compile what is still
-- launched one by one.
-- @use findings, gpu_timeline, source_times
-- @needs kernels with the calls that launched them
WITH launched AS (
    SELECT
        run_id, rank, correlation_id, sum(dur_ns) AS gpu_ns, min(start_ns) AS first_ns,
        arg_min(device, start_ns) AS device, any_value(call_start_ns) AS start_ns, any_value(call_dur_ns) AS dur_ns
    FROM gpu_work
    WHERE kind = 'kernel' AND call_start_ns IS NOT NULL
    GROUP BY run_id, rank, correlation_id
),
calls AS (
    SELECT *, dur_ns - gpu_ns AS excess_ns, start_ns + dur_ns AS end_ns FROM launched
),
compared AS (
    SELECT
        run_id, count(*) AS launches, count(*) FILTER (excess_ns > 0) AS short,
        coalesce(sum(excess_ns) FILTER (excess_ns > 0), 0) AS excess_ns,
        -- The first of those that are as long.
        arg_max({'rank': rank, 'device': device, 'start_ns': start_ns, 'end_ns': end_ns},
            (excess_ns, -start_ns, -rank, -coalesce(device, 0))) FILTER (excess_ns IS NOT NULL) AS longest
    FROM calls
    GROUP BY run_id
),
sources AS (
    SELECT c.run_id, s.source
    FROM source_times s
    JOIN gpu_tracks t USING (track)
    JOIN calls c ON c.run_id = t.run_id AND c.rank = t.rank AND c.device IS NOT DISTINCT FROM t.device
        AND c.first_ns = s.start_ns
    WHERE c.excess_ns > 0
    GROUP BY c.run_id, s.source
    QUALIFY row_number() OVER (PARTITION BY c.run_id ORDER BY sum(excess_ns) DESC, min(s.start_ns), s.source) = 1
)
SELECT
    g.run_group, run_id, least(excess_ns / gpus, idle_ns) AS saving_ns,
    printf('%d of %s (%.0f %%) are shorter than their call, by %s per GPU in total; the GPU is idle for %s',
        short, counted(launches, 'launch', 'launches'), 100.0 * short / launches, ms(excess_ns / gpus), ms(idle_ns))
        || host_note AS evidence,
    c.longest.rank, c.longest.device, c.longest.start_ns, c.longest.end_ns, s.source
FROM compared c JOIN run_gpus g USING (run_id) LEFT JOIN sources s USING (run_id)
