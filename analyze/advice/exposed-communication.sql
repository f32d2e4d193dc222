-- Communication is exposed: no compute overlaps it
--
-- Saving: Communication time without a concurrent compute kernel, mean over the GPUs; minus waits for other ranks,
-- DataParallel's broadcasts and all_gathers that an FSDP module waits for, which are separate findings.
-- See: comm-exposed
-- Try: overlap it: DDP's gradient buckets (bucket_cap_mb), gradient_as_bucket_view, FSDP prefetch; fewer and larger
-- collectives; bf16 gradients.
-- Try for sharded: gather and reduce earlier: FSDP prefetch (set_modules_to_forward_prefetch,
-- set_modules_to_backward_prefetch), larger units, sharding over fewer ranks; more work per gathered byte.
-- Try for tensor parallelism: overlap it with products (asynchronous tensor parallelism), sequence parallelism, fewer
-- ranks per group and only within a host; larger batches, bf16 activations.
-- Try for all_to_all: overlap the exchange of tokens with work that does not need it (shared experts, another
-- micro-batch); fewer and larger exchanges, fewer ranks per group of experts, bf16 or fp8 tokens.
-- Try for send_recv: overlap sends and receives with the next micro-batch (isend and irecv, an interleaved schedule);
-- larger micro-batches.
-- Try for inference: all_reduces of tensor parallelism: fewer ranks, all_reduce kernels of the serving engine, fusion
-- with the next norm; larger batches.
-- @use exposed_comm, findings, fsdp, gpu_timeline
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
),
-- The collective with most of it, in groups of one dimension.
most AS (
    SELECT run_id, owner.collective AS collective, owner.dimension AS dimension, sum(end_ns - start_ns) AS ns
    FROM exposed_comm JOIN gpu_tracks USING (track)
    WHERE owner.part <> 'waiting' AND NOT owner.one_process
    GROUP BY run_id, owner.collective, owner.dimension
    QUALIFY row_number() OVER (
        PARTITION BY run_id ORDER BY sum(end_ns - start_ns) DESC, owner.collective, owner.dimension
    ) = 1
)
SELECT
    run_group, run_id, o.ns / gpus AS saving_ns,
    printf('%s of %s of communication per GPU are exposed', ms(exposed_comm_ns), ms(comm_ns))
        || coalesce(printf('; most of the transfer is %s (%s)', m.collective, ms(m.ns / gpus)), '')
        || and_part(t.ns / gpus, 'of that is counted in stragglers, pipeline-bubble, dataparallel or late-unshards')
        || coalesce(w.note, '') AS evidence,
    o.longest.rank, o.longest.device, o.longest.start_ns, o.longest.end_ns, o.source,
    CASE
        WHEN m.dimension = 'tp' THEN 'tensor parallelism'
        WHEN m.collective IN ('all_gather', 'reduce_scatter') THEN 'sharded'
        WHEN m.collective IN ('all_to_all', 'send_recv') THEN m.collective
    END AS situation
FROM run_gpus
JOIN own o USING (run_id)
LEFT JOIN theirs t USING (run_id)
LEFT JOIN most m USING (run_id)
LEFT JOIN unknown_waits w USING (run_id)
