-- Communication that no compute hides
--
-- Saving: Time with communication kernels and no compute kernel beside them, mean over the GPUs.
-- See: breakdown
-- Try: overlap it: DDP's gradient buckets (bucket_cap_mb), gradient_as_bucket_view, FSDP prefetch; fewer and larger
-- collectives; bf16 gradients.
-- @use run_gpus
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
SELECT
    run_group, run_id, exposed_comm_ns AS saving_ns,
    printf('%s of %s communication a GPU has no compute beside it', ms(exposed_comm_ns), ms(comm_ns)) AS evidence
FROM run_gpus
WHERE exposed_comm_ns > 0
