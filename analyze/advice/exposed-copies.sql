-- Copies that no kernel hides
--
-- Saving: Time with memcpys or memsets and no kernel beside them, mean over the GPUs.
-- See: breakdown
-- Try: prefetch the next batch on a stream of its own, from pinned memory, with non_blocking=True.
-- @use run_gpus
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
SELECT
    run_group, run_id, exposed_copy_ns AS saving_ns,
    printf('%s of %s copies and fills a GPU have no kernel beside them', ms(exposed_copy_ns), ms(copy_ns)) AS evidence
FROM run_gpus
WHERE exposed_copy_ns > 0
