-- How much reserved GPU memory cannot be used, and why?
--
-- From memory snapshots, for the moment of the snapshot. The caching allocator reserves segments of the driver and cuts
-- them into blocks. Inactive blocks can only serve requests of the same stream and pool, and none larger than the
-- largest: many small ones between live blocks are fragmentation.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            Device.
-- @column pool text               Memory pool: (0, 0) is the default one.
-- @column stream id               Stream of the segments.
-- @column segment_kind text       small (requests up to 1 MiB) or large.
-- @column segments count          Segments.
-- @column expandable_segments count   Those that are expandable.
-- @column reserved_bytes B        Their size.
-- @column allocated_bytes B       In blocks that the program holds, or a stream may still use.
-- @column requested_bytes B       What the program requested of these; the rest is rounding.
-- @column inactive_bytes B        In free blocks.
-- @column largest_free_bytes B    The largest free block: a larger request needs a new segment.
-- @column free_segments_bytes B   In segments without a live block: empty_cache() returns them to the driver.
-- @column stuck_bytes B           In free blocks of segments with live blocks: they stay reserved.
-- @main run_id, rank, device, pool, segment_kind, reserved_bytes, inactive_bytes, largest_free_bytes, stuck_bytes
-- @order run_id, rank, device, reserved_bytes DESC, pool, stream, segment_kind
-- @needs a memory snapshot
-- @pass all
-- @plot bars y=rank,device,pool,stream,segment_kind x=reserved_bytes
WITH segments AS (
    SELECT
        run_group, run_id, rank, device, pool, stream, segment_kind, expandable, segment_addr,
        any_value(segment_bytes) AS segment_bytes,
        coalesce(sum(bytes) FILTER (state <> 'inactive'), 0) AS allocated,
        coalesce(sum(requested_bytes) FILTER (state <> 'inactive'), 0) AS requested,
        coalesce(sum(bytes) FILTER (state = 'inactive'), 0) AS inactive,
        coalesce(max(bytes) FILTER (state = 'inactive'), 0) AS largest
    FROM allocator_blocks
    GROUP BY ALL
)
SELECT
    run_group, run_id, rank, device, pool, stream, segment_kind, count(*) AS segments,
    count(*) FILTER (expandable) AS expandable_segments, sum(segment_bytes)::BIGINT AS reserved_bytes,
    sum(allocated)::BIGINT AS allocated_bytes, sum(requested)::BIGINT AS requested_bytes,
    sum(inactive)::BIGINT AS inactive_bytes, max(largest)::BIGINT AS largest_free_bytes,
    coalesce(sum(inactive) FILTER (allocated = 0), 0)::BIGINT AS free_segments_bytes,
    coalesce(sum(inactive) FILTER (allocated > 0), 0)::BIGINT AS stuck_bytes
FROM segments
GROUP BY run_group, run_id, rank, device, pool, stream, segment_kind
