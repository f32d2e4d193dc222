-- How many training steps an epoch has.
-- @use step_counts
-- @macro dataset_images(dataset)  images of an epoch by the run's data: the number behind the colon of made data, else
-- the training split of CIFAR-100 (500 of each of 100 classes) or of Food-101 (750 of each of 101), else NULL.
CREATE MACRO dataset_images(dataset) AS CASE
    WHEN regexp_matches(dataset, '^fake-\w+:\d+$') THEN regexp_extract(dataset, '\d+$')::BIGINT
    WHEN regexp_matches(dataset, '^(fake-)?cifar100(:|$)') THEN 50000
    WHEN regexp_matches(dataset, '^(fake-)?food101(:|$)') THEN 75750
END;

-- @macro epoch_steps(images)  the steps of an epoch of so many images; 0 for those of the run's data.
-- A row is a run. The last step may have fewer images. Under ddp each process has its own batch.
-- @column run_id id             The run.
-- @column epoch_images count    Images of an epoch; NULL where nothing says so.
-- @column step_images count     Images of a step over all processes; NULL where the run does not say.
-- @column epoch_steps count     Steps; NULL where one of the two is.
CREATE MACRO epoch_steps(images) AS TABLE
WITH _sizes AS (
    SELECT
        run_id, CASE WHEN images > 0 THEN images ELSE dataset_images(dataset) END AS epoch_images,
        batch_size * CASE WHEN parallelism = 'ddp' THEN coalesce(world_size, gpus) ELSE 1 END AS step_images
    FROM runs
)
SELECT *, ceil(epoch_images / nullif(step_images, 0))::BIGINT AS epoch_steps FROM _sizes;

-- @macro recorded_times(per, images_asked)  what a sum over a recording is multiplied by to be that of the recording,
-- of a step or of an epoch of so many images.
-- A row is a rank.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column recorded count        Training steps that were recorded.
-- @column steps number          Steps that the sum is then of; NULL where they are not known.
-- @column times x               What it is multiplied by; NULL likewise.
CREATE MACRO recorded_times(per, images_asked) AS TABLE
WITH _steps AS (
    SELECT
        run_id, rank, s.steps AS recorded,
        CASE per WHEN 'recording' THEN s.steps WHEN 'step' THEN 1 ELSE epoch_steps END AS steps
    FROM run_groups LEFT JOIN step_counts s USING (run_id, rank) LEFT JOIN epoch_steps(images_asked) USING (run_id)
)
SELECT *, CASE per WHEN 'recording' THEN 1 ELSE steps / nullif(recorded, 0) END AS times FROM _steps;
