-- What was the state of the GPUs: clocks, power, memory in use, activity of SMs, tensor cores and memory?
--
-- `collect run` samples NVML while torch.profiler records. A sample represents the time since the previous one;
-- averages weight it by the part of that time in the window. Activity comes from NVML's GPM metrics (Hopper and later),
-- which the driver updates ten times a second, as it does power. So a row of less than about 100 ms, such as a step or
-- a phase, includes activity from before and after it; `activity_samples` is its number of samples.
-- @param per recording|step|phase|run = recording  The window of a row: first to last GPU work of the rank, a step, all
--                                 GPU work of a phase, or all samples, also before and after the recording.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column step index              Step; empty unless per=step.
-- @column phase text              Phase of the step; empty unless per=phase.
-- @column activity_samples count  Samples of activity that overlap the window.
-- @column sampled_ns ns           Time in the window that the samples represent.
-- @column sm_active_pct %         SMs that had a warp, averaged over SMs and time.
-- @column occupancy_pct %         Resident warps, share of the most that fit on the SMs.
-- @column tensor_active_pct %     Time in which tensor cores worked.
-- @column fp64_active_pct %       Time in which FP64 pipes worked.
-- @column fp32_active_pct %       Time in which FP32 pipes worked.
-- @column fp16_active_pct %       Time in which FP16 pipes worked.
-- @column dram_active_pct %       Memory bandwidth, share of the theoretical peak.
-- @column pcie_tx_bytes_per_s B/s     PCIe traffic from the GPU.
-- @column pcie_rx_bytes_per_s B/s     PCIe traffic to the GPU.
-- @column nvlink_tx_bytes_per_s B/s   NVLink traffic from the GPU.
-- @column nvlink_rx_bytes_per_s B/s   NVLink traffic to the GPU.
-- @column sm_clock_mhz MHz        Mean clock of the SMs.
-- @column min_sm_clock_mhz MHz    Lowest clock of the SMs.
-- @column power_w W               Mean power draw.
-- @column max_power_w W           Highest power draw.
-- @column max_temperature_c °C    Highest temperature.
-- @column power_limited_pct %     Time in which clocks were reduced for power.
-- @column heat_limited_pct %      Time in which clocks were reduced for temperature.
-- @column max_memory_used_bytes B Most memory in use, by all processes.
-- @column max_processes count     Most processes on the GPU; empty where the driver does not show them.
-- @column max_other_processes count  Most processes of other programs on the GPU; empty if not known.
-- @main run_id, rank, device, step, phase, activity_samples, sm_active_pct, tensor_active_pct, dram_active_pct,
--   sm_clock_mhz, power_w
-- @order run_id, rank, device, step, phase
-- @use arithmetic, gpu_clocks, steps
-- @needs GPU samples
-- @pass gpu
-- @plot bars y=run_id,rank,device x=sm_active_pct
-- @drill rank hardware per=step rank={rank}
WITH samples AS (
    SELECT
        *, lag(start_ns) OVER in_time AS since_ns,
        lag(CASE WHEN sm_active_pct IS NOT NULL THEN start_ns END IGNORE NULLS) OVER in_time AS active_since_ns
    FROM gpu_samples
    WINDOW in_time AS (PARTITION BY run_id, rank, device ORDER BY start_ns)
),
windows AS (
    SELECT
        run_id, rank, device, NULL::INTEGER AS step, NULL AS phase, min(start_ns) AS first_ns,
        max(start_ns + dur_ns) AS last_ns
    FROM gpu_work
    WHERE '{per}' = 'recording'
    GROUP BY run_id, rank, device
    UNION ALL
    SELECT s.run_id, s.rank, d.device, s.step, NULL, s.start_ns, s.end_ns
    FROM step_windows s JOIN (SELECT DISTINCT run_id, rank, device FROM samples) d USING (run_id, rank)
    WHERE '{per}' = 'step'
    UNION ALL
    SELECT run_id, rank, device, NULL, phase, min(start_ns), max(start_ns + dur_ns)
    FROM gpu_work
    WHERE '{per}' = 'phase' AND phase IS NOT NULL
    GROUP BY run_id, rank, device, phase, phase_start_ns
    UNION ALL
    SELECT run_id, rank, device, NULL, NULL, min(since_ns), max(start_ns)
    FROM samples
    WHERE '{per}' = 'run'
    GROUP BY run_id, rank, device
),
parts AS (
    SELECT
        s.* EXCLUDE (start_ns, since_ns, active_since_ns), w.step, w.phase,
        at_least_0(least(s.start_ns, w.last_ns) - greatest(s.since_ns, w.first_ns)) AS part_ns,
        at_least_0(least(s.start_ns, w.last_ns) - greatest(s.active_since_ns, w.first_ns)) AS active_ns
    FROM samples s JOIN windows w ON w.run_id = s.run_id AND w.rank = s.rank AND w.device = s.device
        AND coalesce(s.active_since_ns, s.since_ns) < w.last_ns AND s.start_ns > w.first_ns
)
SELECT
    run_group, run_id, rank, device, step, phase, count(sm_active_pct) AS activity_samples,
    sum(part_ns)::BIGINT AS sampled_ns,
    mean_over(sm_active_pct, active_ns) AS sm_active_pct,
    mean_over(occupancy_pct, active_ns) AS occupancy_pct,
    mean_over(tensor_active_pct, active_ns) AS tensor_active_pct,
    mean_over(fp64_active_pct, active_ns) AS fp64_active_pct,
    mean_over(fp32_active_pct, active_ns) AS fp32_active_pct,
    mean_over(fp16_active_pct, active_ns) AS fp16_active_pct,
    mean_over(dram_active_pct, active_ns) AS dram_active_pct,
    mean_over(pcie_tx_bytes_per_s, active_ns) AS pcie_tx_bytes_per_s,
    mean_over(pcie_rx_bytes_per_s, active_ns) AS pcie_rx_bytes_per_s,
    mean_over(nvlink_tx_bytes_per_s, active_ns) AS nvlink_tx_bytes_per_s,
    mean_over(nvlink_rx_bytes_per_s, active_ns) AS nvlink_rx_bytes_per_s,
    mean_over(sm_clock_mhz, part_ns) AS sm_clock_mhz, min(sm_clock_mhz) FILTER (part_ns > 0) AS min_sm_clock_mhz,
    mean_over(power_w, part_ns) AS power_w, max(power_w) AS max_power_w, max(temperature_c) AS max_temperature_c,
    100 * mean_over(limited_for_power(clock_limits)::INTEGER, part_ns) AS power_limited_pct,
    100 * mean_over(limited_for_heat(clock_limits)::INTEGER, part_ns) AS heat_limited_pct,
    max(memory_used_bytes) AS max_memory_used_bytes, nullif(max(processes), 0) AS max_processes,
    max(other_processes) AS max_other_processes
FROM parts
GROUP BY run_group, run_id, rank, device, step, phase
