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
    SELECT run_id, count(*) AS calls, sum(end_ns - start_ns) AS ns FROM turning GROUP BY run_id
),
-- The operator with most of the time, and the longest of its kernels.
operators AS (
    SELECT run_id, op_name, count(*) AS calls, longest(rank, device, start_ns, end_ns) AS longest
    FROM turning
    GROUP BY run_id, op_name
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY sum(end_ns - start_ns) DESC, op_name) = 1
)
SELECT
    g.run_group, run_id, b.ns / gpus AS saving_ns,
    printf('%s, %s in total', counted(t.calls, 'layout kernel', 'layout kernels'), ms(t.ns))
        || coalesce(printf('; %d of them from %s', o.calls, o.op_name), '') AS evidence,
    o.longest.rank, o.longest.device, o.longest.start_ns, o.longest.end_ns, b.source
FROM total t JOIN operators o USING (run_id) JOIN busy b USING (run_id) JOIN run_gpus g USING (run_id)
