-- How long does an epoch take, and how much of it is data loading and training?
--
-- The mean of the recorded steps, without warm-up, x the steps of an epoch: images of the dataset / images of a step,
-- rounded up. Steps and waits as in `steps`; mean over ranks. A DataLoader with w workers has 2 x w batches ready
-- (torch's default) when the first step begins. With fewer recorded steps than that, warm-up included, the waits are
-- shorter than those of a whole epoch, unless the loader is slower than training from the start.
-- @param images int[0..1000000000000] = 0   Images of an epoch; 0: those of the run's dataset (the number in
--                                 `fake-cifar100:25000`, 50,000 for CIFAR-100, 75,750 for Food-101).
-- @column run_id id               The run.
-- @column profiler text           Profiler under which it was timed.
-- @column images count            Images of an epoch; empty if neither the parameter nor the dataset says.
-- @column step_images count       Images of a step, over all processes.
-- @column steps count             Steps of an epoch.
-- @column recorded count          Recorded steps per rank, which the means are over.
-- @column data_ns ns              Waiting for data in an epoch.
-- @column train_ns ns             epoch_ns - data_ns.
-- @column epoch_ns ns             Duration of an epoch.
-- @column data_pct %              Share that waits for data.
-- @main run_id, profiler, images, steps, data_ns, train_ns, epoch_ns
-- @order run_id
-- @use arithmetic, steps
-- @needs step times: the collector's step metrics, or training steps in the traces
-- @pass all
-- @plot bars y=run_id x=data_ns,train_ns
WITH means AS (
    SELECT
        run_group, run_id, count(*) / count(DISTINCT rank) AS recorded, avg(step_ns) AS step_ns,
        CASE WHEN count(data_ns) = count(*) THEN avg(data_ns) END AS data_ns
    FROM step_waits
    WHERE NOT warmup
    GROUP BY run_group, run_id
),
epochs AS (
    SELECT
        run_group, run_id, epoch_images AS images, step_images, epoch_steps AS steps,
        round(recorded)::BIGINT AS recorded,
        round(data_ns * epoch_steps)::BIGINT AS data_ns, round(step_ns * epoch_steps)::BIGINT AS epoch_ns
    FROM means JOIN epoch_steps($images) USING (run_id)
)
SELECT
    e.* EXCLUDE (epoch_ns), r.profiler, epoch_ns - data_ns AS train_ns, epoch_ns, pct(data_ns, epoch_ns) AS data_pct
FROM epochs e JOIN runs r USING (run_id)
