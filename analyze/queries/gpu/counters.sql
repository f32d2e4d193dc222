-- What do the counters show: Nsight Systems, Chrome traces, GPU and host samples?
--
-- GPU metrics and page faults of Nsight Systems; counter events of a Chrome trace, and metrics of kernels by CUPTI's
-- range profiler (torch.profiler with profiler_metrics); samples that `collect` takes of GPUs and hosts. Means are over
-- the samples, or the kernels; `hardware` weighs the samples of `collect` by time, and names each measure.
-- @param per recording|step|kernel = recording   A row for all values, for those in each step, or for each kernel.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU; empty for counters of the CPU, and if not known.
-- @column step index              Step; empty unless per=step.
-- @column kernel text             Kernel; empty unless per=kernel.
-- @column name text               The counter, with its unit if known.
-- @column samples count           Samples, or kernels.
-- @column avg_value number        Mean.
-- @column min_value number        Lowest.
-- @column max_value number        Highest.
-- @column total_value number      Sum of counters that count: page faults, and sums per kernel; empty for others.
-- @main run_id, rank, device, step, kernel, name, samples, avg_value, min_value, max_value
-- @order run_id, rank, device, step, kernel, name
-- @use counter_values, steps
-- @needs counters or GPU samples
-- @pass all
-- @plot bars y=name x=avg_value
WITH placed AS (
    SELECT v.*, s.step
    FROM counter_values v
    ASOF JOIN step_windows s ON s.run_id = v.run_id AND s.rank = v.rank AND v.start_ns >= s.start_ns
    WHERE '{per}' = 'step' AND v.start_ns < s.end_ns
    UNION ALL
    SELECT *, NULL FROM counter_values WHERE '{per}' = 'recording' OR '{per}' = 'kernel' AND kernel IS NOT NULL
)
SELECT
    run_group, run_id, rank, device, step, CASE WHEN '{per}' = 'kernel' THEN kernel END AS kernel, name,
    count(*) AS samples, avg(value) AS avg_value, min(value) AS min_value, max(value) AS max_value,
    sum(value) FILTER (ends_with(name, 'page faults') OR kernel IS NOT NULL AND ends_with(name, '.sum')) AS total_value
FROM placed
GROUP BY run_group, run_id, rank, device, step, 6, name
