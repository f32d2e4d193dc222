-- What does each GPU do over time?
--
-- The span of a device (first start to last end) in buckets of equal length, in whole ns; the last one may be shorter.
-- Unlike in `breakdown`, compute, communication and copies each count in full, even if they overlap; busy is their
-- union. Communication waits for ranks that have not arrived, as in `collective-waits`.
-- @param buckets int[1..100000] = 50 Number of buckets.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column bucket index            Bucket, from 0.
-- @column start_ns ns             Start of the bucket, since the first event of the run (`run_zeros`).
-- @column span_ns ns              Its length.
-- @column busy_pct %              Share of it with any work.
-- @column compute_pct %           Share of it with compute kernels.
-- @column comm_pct %              Share of it with communication kernels.
-- @column memcpy_pct %            Share of it with memcpys or memsets.
-- @column waiting_pct %           Share of it in which communication waits; empty if no call of several ranks is known.
-- @main run_id, rank, device, start_ns, busy_pct, compute_pct, comm_pct, waiting_pct, memcpy_pct
-- @order run_id, rank, device, bucket
-- @use arithmetic, collectives, gpu_timeline, intervals, run_zeros
-- @by device
-- @needs work on GPUs
-- @pass gpu
-- @plot heatmap x=start_ns width=span_ns y=run_id,rank,device value=compute_pct,comm_pct,waiting_pct,memcpy_pct
WITH spans AS (
    SELECT track, start_ns, end_ns, greatest(1, ceil((end_ns - start_ns) / $buckets))::BIGINT AS width_ns
    FROM gpu_windows_span
),
starts AS (
    SELECT *, unnest(range(start_ns, end_ns, width_ns)) AS bucket_ns FROM spans
),
buckets AS MATERIALIZED (
    SELECT
        row_number() OVER (ORDER BY track, bucket_ns) AS window_id, track, (bucket_ns - start_ns) // width_ns AS bucket,
        bucket_ns AS start_ns, least(bucket_ns + width_ns, end_ns) AS end_ns
    FROM starts
),
busy AS (
    SELECT * FROM gpu_timeline WHERE kernels > 0 OR copies > 0
),
segments AS (
    SELECT * FROM intervals_clip('busy', 'buckets')
),
waits AS (
    SELECT
        t.track, c.own_start_ns + c.excluded_ns AS start_ns, c.own_start_ns + c.excluded_ns + c.wait_ns AS end_ns
    FROM matched_collectives('collective_kernels') c
    JOIN gpu_tracks t ON t.run_id = c.run_id AND t.rank = c.rank AND t.device IS NOT DISTINCT FROM c.device
    WHERE c.status = 'matched' AND c.ranks > 1
),
waited AS (
    SELECT track, start_ns, end_ns FROM intervals_union('waits')
),
waiting AS (
    SELECT window_id, sum(end_ns - start_ns)::BIGINT AS waiting_ns
    FROM intervals_clip('waited', 'buckets')
    GROUP BY window_id
)
SELECT
    run_group, run_id, rank, device, bucket, b.start_ns - zero_ns AS start_ns, b.end_ns - b.start_ns AS span_ns,
    pct(coalesce(busy_ns, 0), b.end_ns - b.start_ns) AS busy_pct,
    pct(coalesce(compute_ns, 0), b.end_ns - b.start_ns) AS compute_pct,
    pct(coalesce(comm_ns, 0), b.end_ns - b.start_ns) AS comm_pct,
    pct(coalesce(copy_ns, 0), b.end_ns - b.start_ns) AS memcpy_pct,
    CASE WHEN track IN (SELECT track FROM waits) THEN pct(coalesce(waiting_ns, 0), b.end_ns - b.start_ns) END
        AS waiting_pct
FROM buckets b
JOIN gpu_tracks USING (track)
JOIN run_zeros USING (run_id)
LEFT JOIN gpu_lengths('segments') USING (window_id)
LEFT JOIN waiting USING (window_id)
