-- How much work is queued on each GPU over time?
--
-- Launches are queued as in `queue-depth`, here over all streams of a device. Buckets have equal length, in whole ns,
-- from the first call to the last start of work; the last one may be shorter. Depth 0: the GPU waits for the CPU, or
-- runs its last work.
-- @param buckets int[1..100000] = 50 Number of buckets.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column bucket index            Bucket, from 0.
-- @column start_ns ns             Start of the bucket, since the first event of the run (`run_zeros`).
-- @column span_ns ns              Its length.
-- @column max_depth count         Largest depth.
-- @column avg_depth number        Mean depth over its time.
-- @column waiting_ns ns           Sum over the launches of their queued time in it.
-- @column empty_ns ns             Time with nothing queued.
-- @main run_id, rank, device, start_ns, max_depth, avg_depth, empty_ns
-- @order run_id, rank, device, bucket
-- @use gpu_timeline, intervals, launches, run_zeros
-- @by device
-- @needs GPU work with the calls that launched it
-- @full launch calls
-- @plot area x=start_ns y=max_depth,avg_depth by=run_id,rank,device
WITH waiting AS (
    SELECT t.track, q.start_ns, q.end_ns
    FROM queued_launches q
    JOIN gpu_tracks t ON t.run_id = q.run_id AND t.rank = q.rank AND t.device IS NOT DISTINCT FROM q.device
),
spans AS (
    SELECT
        track, min(start_ns) AS first_ns, max(end_ns) AS last_ns,
        greatest(1, ceil((max(end_ns) - min(start_ns)) / $buckets))::BIGINT AS width_ns
    FROM waiting
    GROUP BY track
),
starts AS (
    SELECT *, unnest(range(first_ns, last_ns, width_ns)) AS start_ns FROM spans
),
buckets AS (
    SELECT
        track, (start_ns - first_ns) // width_ns AS bucket, start_ns, least(start_ns + width_ns, last_ns) AS end_ns
    FROM starts
),
-- A bucket is an interval that queues nothing, so no segment crosses its edges.
edges AS (
    SELECT track, start_ns, end_ns, 1 AS value FROM waiting
    UNION ALL
    SELECT track, start_ns, end_ns, 0 FROM buckets
),
depths AS (
    SELECT track, (start_ns - first_ns) // width_ns AS bucket, end_ns - start_ns AS dur_ns, total::BIGINT AS depth
    FROM intervals_overlap_sum('edges') JOIN spans USING (track)
),
queued AS (
    SELECT
        track, bucket, max(depth) AS max_depth, sum(dur_ns * depth)::BIGINT AS waiting_ns,
        sum(dur_ns) FILTER (depth = 0)::BIGINT AS empty_ns
    FROM depths
    GROUP BY track, bucket
)
SELECT
    run_group, run_id, rank, device, bucket, start_ns - zero_ns AS start_ns, end_ns - start_ns AS span_ns, max_depth,
    waiting_ns::DOUBLE / (end_ns - start_ns) AS avg_depth, waiting_ns, coalesce(empty_ns, 0) AS empty_ns
FROM buckets JOIN queued USING (track, bucket) JOIN gpu_tracks USING (track) JOIN run_zeros USING (run_id)
