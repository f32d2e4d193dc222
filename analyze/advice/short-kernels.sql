-- Kernels shorter than the call that launches them
--
-- Saving: Launch call less GPU time, summed over the launches for which that is more than 0, at most the idle time,
-- over the GPUs.
-- Overlaps: host-wait, blocking-calls, data-wait, dataparallel, optimizer
-- See: launch
-- Try: fuse them (torch.compile), CUDA graphs, or larger batches.
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column start_ns ns             Start of the longest stretch that it is about.
-- @column end_ns ns               End of that.
-- @order run_id
-- @use launch_calls, run_gpus
-- @needs kernels with the calls that launched them
WITH launched AS (
    SELECT run_id, rank, correlation_id, sum(dur_ns) AS gpu_ns
    FROM kernels
    WHERE correlation_id IS NOT NULL
    GROUP BY run_id, rank, correlation_id
),
compared AS (
    SELECT
        run_id, count(*) AS launches, count(*) FILTER (gpu_ns < l.dur_ns) AS short,
        coalesce(sum(l.dur_ns - gpu_ns) FILTER (gpu_ns < l.dur_ns), 0) AS excess_ns,
        arg_max({'start_ns': l.start_ns, 'end_ns': l.start_ns + l.dur_ns}, l.dur_ns - gpu_ns) AS longest
    FROM launched JOIN launch_calls l USING (run_id, rank, correlation_id)
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, least(excess_ns / gpus, idle_ns) AS saving_ns,
    printf('%d of %s (%.0f %%) run shorter than the call, by %s in all a GPU; the GPU is idle for %s',
        short, counted(launches, 'launch', 'launches'), 100.0 * short / launches, ms(excess_ns / gpus), ms(idle_ns))
        || host_note AS evidence,
    c.longest.start_ns, c.longest.end_ns
FROM compared c JOIN run_gpus g USING (run_id)
