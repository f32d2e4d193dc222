-- How much CPU and GPU time do all operators take, and how many calls?
--
-- The last lines of torch.profiler's table ("Self CPU time total" and "Self CUDA time total"), and the number of calls
-- in `ops`. For a step or an epoch: the sums of the recording x steps / recorded steps. Steps of an epoch as in
-- `epochs`.
-- @param per recording|step|epoch = recording   Period that the sums are for.
-- @param images int[0..1000000000000] = 0   Images of an epoch; 0: those of the run's dataset.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column recorded count          Recorded training steps.
-- @column steps number            Steps that the sums are for; empty if not known.
-- @column cpu_ns ns               Self CPU time of operators, ranges and CUDA calls; empty if none were recorded.
-- @column device_ns ns            Time of kernels, memcpys and memsets.
-- @column op_calls count          Operator calls; empty if none were recorded.
-- @column cuda_calls count        CUDA runtime and driver calls; empty if none were recorded.
-- @column kernels count           Kernels.
-- @column copies count            Memcpys and memsets.
-- @main run_id, rank, steps, cpu_ns, device_ns, op_calls, kernels
-- @order run_id, rank
-- @use call_sums, steps
-- @needs operators, ranges, CUDA calls or GPU work
-- @full operators
-- @plot bars y=run_id,rank x=cpu_ns,device_ns
WITH added AS (
    SELECT
        run_group, run_id, rank, sum(known_ns(self_ns)) FILTER (kind <> 'async') AS cpu_ns, 0 AS device_ns,
        coalesce(sum(calls) FILTER (kind = 'op'), 0) AS op_calls,
        coalesce(sum(calls) FILTER (kind = 'call'), 0) AS cuda_calls,
        0 AS kernels, 0 AS copies
    FROM op_sums
    WHERE NOT python
    GROUP BY ALL
    UNION ALL
    SELECT
        run_group, run_id, rank, NULL, sum(dur_ns), NULL, NULL, count(*) FILTER (kind = 'kernel'),
        count(*) FILTER (kind <> 'kernel')
    FROM gpu_work
    GROUP BY ALL
),
sums AS (
    SELECT run_group, run_id, rank, sum(COLUMNS(* EXCLUDE (run_group, run_id, rank))) FROM added GROUP BY ALL
)
SELECT
    run_group, run_id, rank, recorded, steps,
    round(COLUMNS(* EXCLUDE (run_group, run_id, rank, recorded, steps, times)) * times)::BIGINT
FROM sums JOIN recorded_times('{per}', $images) USING (run_id, rank)
