-- What did the counters say: GPU metrics and page faults of Nsight Systems, and the samples of GPUs by `collect`?
--
-- Means are over the samples; `hardware` weighs the samples of `collect` by time, and names each measure.
-- @param per recording|step = recording   A row for all samples, or for those in each step.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU; empty for counters of the CPU.
-- @column step index              Step; empty but with per = step.
-- @column name text               The counter, with its unit where the recording says it.
-- @column samples count           Samples.
-- @column avg_value number        Mean.
-- @column min_value number        Lowest.
-- @column max_value number        Highest.
-- @column total_value number      Sum: for page faults their number.
-- @main run_id, rank, device, step, name, samples, avg_value, min_value, max_value
-- @order run_id, rank, device, step, name
-- @use counter_values, steps
-- @needs counters of Nsight Systems or samples of GPUs
-- @pass all
-- @plot bars y=name x=avg_value
WITH placed AS (
    SELECT v.*, s.step
    FROM counter_values v
    ASOF JOIN step_windows s ON s.run_id = v.run_id AND s.rank = v.rank AND v.start_ns >= s.start_ns
    WHERE '{per}' = 'step' AND v.start_ns < s.end_ns
    UNION ALL
    SELECT *, NULL FROM counter_values WHERE '{per}' = 'recording'
)
SELECT
    run_group, run_id, rank, device, step, name, count(*) AS samples, avg(value) AS avg_value, min(value) AS min_value,
    max(value) AS max_value, sum(value) AS total_value
FROM placed
GROUP BY run_group, run_id, rank, device, step, name
