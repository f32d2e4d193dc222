-- What does launching cost, and how long are kernels queued?
--
-- A row is a launch function (cudaLaunchKernel, cudaLaunchKernelExC, cuLaunchKernel(Ex), cudaGraphLaunch or another) on
-- a rank and device. Queue delay: from the end of the call to the start of its kernel, at least 0. A short kernel takes
-- less time than its launch call. A call that launched several kernels (a CUDA graph) counts once: first start, sum of
-- durations. Outliers: calls longer than call_us, or kernels that wait longer than delay_us. `(no launch call)`:
-- kernels without a recorded call. Calls without recorded GPU work have no device.
-- @param work kernels|all = kernels   all: count memcpys, memsets and their launch calls, too.
-- @param call_us number[0..1e9] = 50   Calls longer than this (us) are outliers.
-- @param delay_us number[0..1e9] = 100   Queue delays longer than this (us) are outliers.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU; empty for calls without recorded GPU work.
-- @column name text               Launch function.
-- @column calls count             Launch calls.
-- @column call_ns ns              Sum of their durations.
-- @column queue_delay_ns ns       Sum of queue delays.
-- @column short_kernels count     Launches whose work is shorter than the call.
-- @column outliers count          Launches whose call or delay is an outlier.
-- @column kernels count           Kernels that ran (with work=all, memcpys and memsets too).
-- @column avg_call_ns ns          Mean duration of a call.
-- @column avg_queue_delay_ns ns   Mean queue delay; empty without a launch with recorded call and work.
-- @column max_queue_delay_ns ns   Longest queue delay.
-- @column call_outliers count     Calls longer than call_us.
-- @column delay_outliers count    Queue delays longer than delay_us.
-- @main run_id, rank, device, name, calls, avg_call_ns, avg_queue_delay_ns, short_kernels, outliers
-- @order run_id, rank, device, calls DESC, name
-- @use arithmetic
-- @by device, stream
-- @needs kernels or the calls that launch them
-- @full launch calls
-- @plot bars y=run_id,rank,device,name x=avg_call_ns,avg_queue_delay_ns
-- @drill name cuda-api name={name}
-- @drill rank queue-depth rank={rank} device={device}
WITH work AS (
    -- A graph of copies alone launched something, too, so it is not among the launches without work.
    SELECT
        run_id, rank, run_group, device, call_name, call_start_ns + call_dur_ns AS called_ns, call_dur_ns AS call_ns,
        count(*) FILTER (counts) AS kernels, min(start_ns) FILTER (counts) AS start_ns,
        (sum(dur_ns) FILTER (counts))::BIGINT AS gpu_ns
    FROM (SELECT *, kind = 'kernel' OR '{work}' = 'all' AS counts FROM gpu_work)
    GROUP BY run_id, rank, run_group, device, correlation_id, call_name, call_start_ns, call_dur_ns
),
launching AS (
    SELECT
        run_group, run_id, rank, device, coalesce(call_name, '(no launch call)') AS name,
        call_name IS NOT NULL AS called, call_ns, kernels, at_least_0(start_ns - called_ns) AS delay_ns,
        gpu_ns < call_ns AS short
    FROM work
    WHERE kernels > 0
    UNION ALL
    SELECT run_group, run_id, rank, NULL, name, true, dur_ns, 0, NULL, NULL
    FROM launches_without_work
)
SELECT
    run_group, run_id, rank, device, name,
    count(*) FILTER (called) AS calls,
    coalesce(sum(call_ns), 0)::BIGINT AS call_ns,
    coalesce(sum(delay_ns), 0)::BIGINT AS queue_delay_ns,
    count(*) FILTER (short) AS short_kernels,
    count(*) FILTER (call_ns > $call_us * 1000::BIGINT OR delay_ns > $delay_us * 1000::BIGINT) AS outliers,
    sum(kernels)::BIGINT AS kernels, avg(call_ns) AS avg_call_ns,
    avg(delay_ns) AS avg_queue_delay_ns, max(delay_ns) AS max_queue_delay_ns,
    count(*) FILTER (call_ns > $call_us * 1000::BIGINT) AS call_outliers,
    count(*) FILTER (delay_ns > $delay_us * 1000::BIGINT) AS delay_outliers
FROM launching
GROUP BY run_group, run_id, rank, device, name
