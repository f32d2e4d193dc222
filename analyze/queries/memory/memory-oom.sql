-- Why did the GPU run out of memory, and what would have helped?
--
-- From memory snapshots whose history has an OutOfMemoryError (collect run --oom-snapshot takes one then). Bytes held
-- and reserved are those before the request that failed. `cause` compares the request with what could be free:
-- fragmentation: free blocks in segments that also hold live blocks would have been enough.
-- too large: all free memory of the device and of the allocator together would not have been enough.
-- cached: segments without a live block, and the device's free memory, would have been enough.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            Device.
-- @column start_ns ns             When, since the run's first event.
-- @column requested_bytes B       The request that failed.
-- @column device_free_bytes B     Free on the device, for any process.
-- @column held_bytes B            Requested bytes that the program held.
-- @column free_blocks_bytes B     In free blocks of the allocator, when the snapshot was taken.
-- @column largest_free_bytes B    The largest of them.
-- @column stuck_bytes B           In those of segments that also hold live blocks.
-- @column cause text              fragmentation, too large or cached; see above.
-- @column where text              The program's line that made the request.
-- @column advice text             What helps.
-- @main run_id, rank, device, requested_bytes, device_free_bytes, held_bytes, largest_free_bytes, cause, where
-- @order run_id, rank, device, start_ns
-- @use allocator, run_zeros
-- @needs a memory snapshot
-- @pass all
-- @drill run_id memory-live at=oom
WITH segments AS (
    SELECT
        run_id, rank, device, sum(bytes) FILTER (state = 'inactive') AS free_bytes,
        sum(requested_bytes) FILTER (state = 'active_allocated') AS held_bytes,
        max(bytes) FILTER (state = 'inactive') AS largest_bytes, bool_or(state <> 'inactive') AS is_used
    FROM allocator_blocks
    GROUP BY run_id, rank, device, segment_addr
),
free_blocks AS (
    SELECT
        run_id, rank, device, coalesce(sum(free_bytes), 0)::BIGINT AS free_blocks_bytes,
        coalesce(max(largest_bytes), 0)::BIGINT AS largest_free_bytes,
        coalesce(sum(held_bytes), 0)::BIGINT AS held_bytes,
        coalesce(sum(free_bytes) FILTER (is_used), 0)::BIGINT AS stuck_bytes
    FROM segments
    GROUP BY run_id, rank, device
),
failures AS (
    SELECT
        e.run_group, e.run_id, e.rank, e.device, e.start_ns, e.bytes AS requested_bytes, e.device_free_bytes,
        -- Without a history, what was held when the snapshot was taken: at once.
        coalesce(c.held_bytes, f.held_bytes) AS held_bytes, f.* EXCLUDE (run_id, rank, device, held_bytes), e.stack,
        CASE
            WHEN e.device_free_bytes + f.free_blocks_bytes - f.stuck_bytes >= e.bytes THEN 'cached'
            WHEN e.device_free_bytes + f.free_blocks_bytes >= e.bytes THEN 'fragmentation'
            WHEN e.device_free_bytes + f.free_blocks_bytes < e.bytes THEN 'too large'
        END AS cause
    FROM allocator_events e
    ASOF LEFT JOIN allocator_changes c
        ON c.run_id = e.run_id AND c.rank = e.rank AND c.device = e.device AND e.event >= c.event
    LEFT JOIN free_blocks f ON f.run_id = e.run_id AND f.rank = e.rank AND f.device = e.device
    WHERE e.action = 'oom'
)
SELECT
    f.run_group, f.run_id, f.rank, f.device, f.start_ns - zero_ns AS start_ns, requested_bytes,
    device_free_bytes, held_bytes, free_blocks_bytes, largest_free_bytes, stuck_bytes, cause, o.frame AS "where",
    CASE cause
        WHEN 'fragmentation' THEN 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets free blocks join'
        WHEN 'cached' THEN 'another stream or pool reserved it: torch.cuda.empty_cache() before the request'
        WHEN 'too large' THEN 'smaller batches, activation checkpointing, sharding; memory-live shows what is allocated'
    END AS advice
FROM failures f
JOIN run_zeros z ON z.run_id = f.run_id
LEFT JOIN allocator_owners o ON o.run_id = f.run_id AND o.rank = f.rank AND o.stack = f.stack
