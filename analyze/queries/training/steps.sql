-- How long does each training step take, and how much of it waits for data?
--
-- A step is from the start of its ProfilerStep# range (or the collector's NVTX range `step`) to the start of the next,
-- as in `breakdown window=step`. The last one ends with its range, or with the last GPU work launched in it. Waits are
-- the ranges of the phase `data` in the step; empty for ranks without such ranges. Steps that were not recorded have
-- the collector's times. timed_* are the collector's own times: on a GPU, the step between two CUDA events and the wait
-- by the clock inside its range; both are a few us shorter than the recorded ranges. slowdown is the overhead of
-- recording: mean of the recorded steps / mean of the steps before the profiler started, both by the collector's clock
-- (`warmup=yes` shows those steps; docs/collect.md says how programs other than the collector's are timed).
-- @param warmup no|yes = no       Whether warm-up steps are shown.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column step index              Step number.
-- @column data_ns ns              Waiting for the batch.
-- @column train_ns ns             step_ns - data_ns.
-- @column step_ns ns              The whole step.
-- @column data_pct %              Share of the step that waits for data.
-- @column images_per_s images/s   Images of this rank per second; empty if the run does not say how many.
-- @column profiler_ns ns          Part of the window in which the profiler itself worked on the CPU (see `gaps`).
-- @column timed_data_ns ns        Waiting for the batch, as the collector timed it.
-- @column timed_step_ns ns        The step, as the collector timed it.
-- @column undisturbed bool        Whether it ran before the profiler started (the baseline for slowdown).
-- @column undisturbed_step_ns ns  Mean of the rank's steps before the profiler started; empty if none were timed.
-- @column slowdown x              Mean of its recorded steps / undisturbed_step_ns.
-- @main run_id, rank, step, data_ns, train_ns, step_ns, data_pct, images_per_s
-- @order run_id, rank, step
-- @use arithmetic, profiler_cost, steps
-- @needs training steps (ProfilerStep# or NVTX ranges named step), or the collector's step metrics
-- @pass gpu
-- @plot strip x=step y=train_ns,data_ns whole=step_ns lane=run_id,rank
-- @drill step breakdown window=step step={step} rank={rank}
-- @drill data_ns dataloader window=step step={step} rank={rank}
-- @drill train_ns critical-path window=step group=name step={step} rank={rank}
SELECT
    run_group, run_id, rank, step, data_ns, step_ns - data_ns AS train_ns, step_ns,
    pct(data_ns, step_ns) AS data_pct, images * 1e9 / nullif(step_ns, 0) AS images_per_s, profiler_ns,
    timed_data_ns, timed_step_ns, undisturbed, undisturbed_step_ns, slowdown
FROM step_waits
LEFT JOIN (SELECT run_id, rank, undisturbed_step_ns, slowdown FROM step_costs) USING (run_id, rank)
WHERE NOT warmup OR '{warmup}' = 'yes'
