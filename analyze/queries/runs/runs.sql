-- Which runs are there?
-- @column run_id id               The run.
-- @column profiler text           torch, nsys, ncu, nvprof or none.
-- @column status text             running, done or failed; empty for bare files.
-- @column model text              Model.
-- @column batch_size index        Images per step (per process under ddp).
-- @column gpus index              GPUs that train.
-- @column parallelism text        none, dp or ddp.
-- @column precision text          fp32, tf32, bf16 or fp16.
-- @column ranks count             Ranks that were ingested.
-- @column command text            Command that was recorded.
-- @column gpu_name text           GPU.
-- @column start_time time         Start, UTC.
-- @column reason text             Why it failed.
-- @column warnings text           Warnings of the ingest.
-- @main run_id, profiler, status, ranks, command
-- @order start_time NULLS LAST, run_id
-- @needs runs that --where and --profiler leave
-- @pass all
SELECT DISTINCT
    run_group, run_id, profiler, status, model, batch_size, gpus, parallelism, precision, ranks, command, gpu_name,
    start_time, reason, warnings
FROM run_groups
