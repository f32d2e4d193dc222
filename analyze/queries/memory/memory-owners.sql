-- Who holds the GPU's memory over time?
--
-- From the history of a memory snapshot, in buckets of equal length, in whole ns, from its first event to the last. The
-- rows of a bucket add up to what the program held at its end. Bytes are requested ones.
-- @param buckets int[1..10000] = 50   Number of buckets.
-- @param group frame|path|module|layers|category|stream|pool = frame   What a row is: the program's innermost line, all
--                                 its lines, the nn.Module that ran, its module list, what the bytes are for,
--                                 a stream, or a memory pool.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            Device.
-- @column bucket index            Bucket, from 0.
-- @column start_ns ns             Its start, since the first event of the run (`run_zeros`).
-- @column span_ns ns              Its length.
-- @column {group} text            Who requested the bytes; (not recorded) if not known.
-- @column blocks count            Blocks that it holds at the end of the bucket.
-- @column bytes B                 Their bytes.
-- @main run_id, rank, device, start_ns, {group}, blocks, bytes
-- @order run_id, rank, device, bucket, bytes DESC, {group}
-- @use allocator, run_zeros
-- @needs a memory snapshot
-- @pass all
-- @plot area x=start_ns y=bytes by=rank,device,{group} top=8
WITH spans AS (
    SELECT
        run_group, run_id, rank, device, min(start_ns) AS first_ns, max(start_ns) + 1 AS end_ns,
        greatest(1, ceil((max(start_ns) + 1 - min(start_ns)) / $buckets))::BIGINT AS width_ns
    FROM allocator_changes
    GROUP BY run_group, run_id, rank, device
),
changes AS (
    SELECT run_id, rank, device, {group} AS owner, event, 1 AS blocks, bytes FROM allocator_requests
    UNION ALL
    SELECT run_id, rank, device, {group}, freed_event, -1, -bytes
    FROM allocator_requests
    WHERE freed_event IS NOT NULL
),
placed AS (
    SELECT
        c.run_id, c.rank, c.device, c.owner,
        -- What is older than the history is there from its begin on.
        coalesce((e.start_ns - s.first_ns) // s.width_ns, 0) AS bucket, sum(c.blocks) AS blocks, sum(c.bytes) AS bytes
    FROM changes c
    JOIN spans s USING (run_id, rank, device)
    LEFT JOIN allocator_changes e
        ON e.run_id = c.run_id AND e.rank = c.rank AND e.device = c.device AND e.event = c.event
    GROUP BY ALL
),
every_bucket AS (
    SELECT run_id, rank, device, owner, unnest(range((end_ns - first_ns - 1) // width_ns + 1)) AS bucket
    FROM (SELECT DISTINCT run_id, rank, device, owner FROM placed) JOIN spans USING (run_id, rank, device)
),
summed AS (
    SELECT
        b.*, sum(coalesce(p.blocks, 0)) OVER so_far AS blocks, sum(coalesce(p.bytes, 0)) OVER so_far AS bytes
    FROM every_bucket b LEFT JOIN placed p USING (run_id, rank, device, owner, bucket)
    WINDOW so_far AS (
        PARTITION BY b.run_id, b.rank, b.device, b.owner ORDER BY b.bucket
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
SELECT
    run_group, run_id, rank, device, bucket, first_ns + bucket * width_ns - zero_ns AS start_ns,
    least(width_ns, end_ns - first_ns - bucket * width_ns) AS span_ns, owner AS {group}, blocks::BIGINT AS blocks,
    bytes::BIGINT AS bytes
FROM summed JOIN spans USING (run_id, rank, device) JOIN run_zeros USING (run_id)
WHERE blocks > 0
