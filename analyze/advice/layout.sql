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
),
busy AS (
    SELECT * FROM run_time_covered('turning')
),
total AS (
    SELECT run_id, count(*) AS calls, sum(end_ns - start_ns) AS ns, longest(rank, device, start_ns, end_ns) AS longest
    FROM turning
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, b.ns / gpus AS saving_ns,
    printf('%s, %s in total', counted(t.calls, 'layout kernel', 'layout kernels'), ms(t.ns)) AS evidence,
    t.longest.rank, t.longest.device, t.longest.start_ns, t.longest.end_ns, b.source
FROM total t JOIN busy b USING (run_id) JOIN run_gpus g USING (run_id)
