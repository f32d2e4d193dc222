-- How much work is queued on each stream?
--
-- A launch is queued from the start of its call to the start of its first work on the stream (kernel, memcpy or
-- memset). The depth is the number of queued launches. Means are weighted by time, from the first call to the last
-- start. Long time at depth 0: the GPU waits for the CPU. A full queue blocks the launching thread.
-- @param full int[1..1000000000] = 1024   Depth at which the queue counts as full.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column stream id               CUDA stream.
-- @column launches count          Launches with a recorded call.
-- @column span_ns ns              First call to last start.
-- @column avg_depth number        Mean depth over the span.
-- @column max_depth count         Largest depth.
-- @column empty_ns ns             Time with nothing queued.
-- @column empty_pct %             Share of the span.
-- @column full_ns ns              Time with a full queue.
-- @main run_id, rank, device, stream, launches, avg_depth, max_depth, empty_pct
-- @order run_id, rank, device, stream
-- @use arithmetic, intervals, launches
-- @by device, stream
-- @needs GPU work with the calls that launched it
-- @full launch calls
-- @plot bars y=run_id,rank,device,stream x=avg_depth
WITH lanes AS MATERIALIZED (
    SELECT row_number() OVER ()::INTEGER AS track, *
    FROM (SELECT DISTINCT run_group, run_id, rank, device, stream FROM queued_launches)
),
waiting AS (
    SELECT l.track, q.start_ns, q.end_ns
    FROM queued_launches q
    JOIN lanes l
        ON l.run_id = q.run_id AND l.rank = q.rank AND l.device IS NOT DISTINCT FROM q.device
        AND l.stream IS NOT DISTINCT FROM q.stream
),
streams AS (
    SELECT track, count(*) AS launches, max(end_ns) - min(start_ns) AS span_ns FROM waiting GROUP BY track
),
depths AS (
    SELECT
        track, sum((end_ns - start_ns) * n)::BIGINT AS depth_ns, max(n) AS max_depth,
        sum(end_ns - start_ns) FILTER (n > 0)::BIGINT AS queued_ns,
        coalesce(sum(end_ns - start_ns) FILTER (n >= $full), 0)::BIGINT AS full_ns
    FROM intervals_overlap_count('waiting')
    GROUP BY track
)
SELECT
    run_group, run_id, rank, device, stream, launches, span_ns,
    coalesce(depth_ns, 0)::DOUBLE / nullif(span_ns, 0) AS avg_depth, coalesce(max_depth, 0) AS max_depth,
    span_ns - coalesce(queued_ns, 0) AS empty_ns, pct(span_ns - coalesce(queued_ns, 0), span_ns) AS empty_pct,
    coalesce(full_ns, 0) AS full_ns
FROM streams JOIN lanes USING (track) LEFT JOIN depths USING (track)
