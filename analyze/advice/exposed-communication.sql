-- Communication is exposed: no compute overlaps it
--
-- Saving: Communication time without a concurrent compute kernel, mean over the GPUs; minus waits for other ranks,
-- DataParallel's broadcasts and all_gathers that an FSDP module waits for, which are separate findings.
-- See: comm-exposed
-- Try: overlap it: DDP's gradient buckets (bucket_cap_mb), gradient_as_bucket_view, FSDP prefetch; fewer and larger
-- collectives; bf16 gradients.
-- @use exposed_comm, findings, fsdp
-- @needs communication kernels without concurrent compute
-- @pass gpu
WITH exposed AS MATERIALIZED (
    SELECT track, start_ns, end_ns, owner.part = 'waiting' AND NOT owner.one_process AS waits FROM exposed_comm
),
others AS (
    SELECT track, start_ns, end_ns FROM exposed WHERE waits
    UNION ALL
    SELECT track, start_ns, end_ns FROM dataparallel_broadcasts
    UNION ALL
    SELECT track, start_ns, end_ns FROM late_unshards
),
theirs AS (
    SELECT * FROM run_time_outside('others', 'compute_times')
),
own AS (
    SELECT * FROM run_time_outside('exposed', 'others')
)
SELECT
    run_group, run_id, o.ns / gpus AS saving_ns,
    printf('%s of %s of communication per GPU are exposed', ms(exposed_comm_ns), ms(comm_ns))
        || and_part(t.ns / gpus, 'of that is counted in stragglers, pipeline-bubble, dataparallel or late-unshards')
        || coalesce(w.note, '') AS evidence,
    o.longest.rank, o.longest.device, o.longest.start_ns, o.longest.end_ns, o.source
FROM run_gpus
JOIN own o USING (run_id)
LEFT JOIN theirs t USING (run_id)
LEFT JOIN unknown_waits w USING (run_id)
