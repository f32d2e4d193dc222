-- Communication that no compute hides
--
-- Saving: Time with communication kernels and no compute kernel beside them, mean over the GPUs, less what of it is
-- waiting for a straggler or DataParallel's broadcasts: findings of their own.
-- See: breakdown
-- Try: overlap it: DDP's gradient buckets (bucket_cap_mb), gradient_as_bucket_view, FSDP prefetch; fewer and larger
-- collectives; bf16 gradients.
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column rank index              Rank of the longest stretch that it is about.
-- @column device index            GPU of that.
-- @column start_ns ns             Its start.
-- @column end_ns ns               Its end.
-- @column source text             Line of the program that most of its time comes from; NULL if not known.
-- @order run_id
-- @use gpu_tracks, run_gpus, time_owners
-- @needs communication kernels without compute beside them
WITH others AS (
    SELECT track, start_ns, end_ns FROM straggler_waits
    UNION ALL
    SELECT track, start_ns, end_ns FROM dataparallel_broadcasts
),
theirs AS (
    SELECT * FROM run_time_outside('others', 'compute_times')
),
communication AS (
    SELECT track, start_ns, end_ns FROM gpu_intervals WHERE class = 'comm'
),
own AS (
    SELECT * FROM run_time_outside('communication', 'compute_times')
)
SELECT
    run_group, run_id, exposed_comm_ns - coalesce(t.ns, 0) / gpus AS saving_ns,
    printf('%s of %s communication a GPU has no compute beside it', ms(exposed_comm_ns), ms(comm_ns))
        || and_part(t.ns / gpus, 'of that is found under stragglers or dataparallel')
        || coalesce(w.note, '') AS evidence,
    o.longest.rank, o.longest.device, o.longest.start_ns, o.longest.end_ns, o.source
FROM run_gpus
LEFT JOIN own o USING (run_id)
LEFT JOIN theirs t USING (run_id)
LEFT JOIN unknown_waits w USING (run_id)
WHERE exposed_comm_ns > 0
