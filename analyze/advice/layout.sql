-- Kernels convert between NCHW and NHWC
--
-- Saving: Time of kernels whose names say so, mean over the GPUs.
-- See: kernel-share
-- Try: model.to(memory_format=torch.channels_last), and the same for the input.
-- @use findings
-- @needs layout kernels (NCHW to NHWC or back)
WITH turning AS (
    SELECT k.*
    FROM tracked_kernels k SEMI JOIN (
        SELECT run_id, name
        FROM kernel_names
        WHERE regexp_matches(name, '(?i)nchw_?to_?(folded_?)?nhwc|nhwc_?to_?(folded_?)?nchw')
    ) n USING (run_id, name)
)
SELECT
    g.run_group, run_id, k.covered_ns / gpus AS saving_ns,
    printf('%s, %s in total', counted(k.calls, 'layout kernel', 'layout kernels'), ms(k.ns)) || k.from_text AS evidence,
    k.rank, k.device, k.start_ns, k.end_ns, k.source
FROM kernel_findings('turning') k JOIN run_gpus g USING (run_id)
