-- How long does each training step take, and how much of it waits for data?
--
-- A step is the window from the start of its ProfilerStep# range (or the collector's NVTX range `step`) to the start of
-- the next, as in `breakdown window=step`; the last one ends with its range, or with the last GPU work launched inside
-- it. Waits are the ranges of the phase `data` inside the window; empty for a rank that has none. A step that no
-- recording holds has the collector's own times. Beside them, timed_* is what the collector timed: on a GPU from the
-- event before the step to the event behind it, and the wait by the clock inside its range, so a few us less than the
-- windows that hold the ranges and the time between them. What recording cost is in slowdown: the mean of the rank's
-- recorded steps by that clock, over the mean of those that it ran before the profiler started (`warmup=yes` shows
-- them; of a program of one's own, the mean alone is their time, see docs/collect.md).
-- @param warmup no|yes = no       Whether warm-up steps are shown.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column step index              Step number.
-- @column data_ns ns              Waiting for the batch.
-- @column train_ns ns             The rest of the step.
-- @column step_ns ns              The whole step.
-- @column data_pct %              Share of the step that waits for data.
-- @column images_per_s images/s   Images of this rank per second, where the run says how many.
-- @column profiler_ns ns          Part of the window in which the profiler itself worked on the CPU (see `gaps`).
-- @column timed_data_ns ns        Waiting for the batch, as the collector timed it.
-- @column timed_step_ns ns        The step, as the collector timed it.
-- @column undisturbed bool        Whether it ran before the profiler started, to compare the others with.
-- @column undisturbed_step_ns ns  Mean of the rank's undisturbed steps; empty where none were timed.
-- @column slowdown x              Mean of its recorded steps over that.
-- @main run_id, rank, step, data_ns, train_ns, step_ns, data_pct, images_per_s
-- @order run_id, rank, step
-- @use arithmetic, step_costs, step_times
-- @needs training steps (ProfilerStep# or NVTX ranges named step), or the collector's step metrics
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
