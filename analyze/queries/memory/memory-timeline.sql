-- How much memory is allocated and reserved over time?
--
-- From the allocator events of the trace (torch.profiler with profile_memory), per device, from the first event to the
-- last in equal buckets of whole ns, or event by event with buckets = 0. What a bucket inherits counts for its peak.
-- Nsight Systems writes driver allocations: reserved_bytes alone.
-- @param buckets int[0..100000] = 50   Number of buckets; 0 for a row for each event.
-- @param device_type all|gpu|cuda|hip|xpu|cpu = all   Which allocator; cuda also finds AMD's GPUs, as in torch.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device_type text        cpu, cuda, hip or xpu.
-- @column device index            Device; -1 for the CPU.
-- @column bucket index            Bucket or event, from 0.
-- @column start_ns ns             Its start, from the first event.
-- @column span_ns ns              Its length; of an event, until the next.
-- @column events count            Allocations and frees in it.
-- @column change_bytes B          Sum of what they allocated and freed.
-- @column allocated_bytes B       Allocated at its end.
-- @column peak_allocated_bytes B  Most that was allocated in it.
-- @column peak_reserved_bytes B   Most that the allocator held in it.
-- @main run_id, rank, device_type, device, start_ns, change_bytes, peak_allocated_bytes, peak_reserved_bytes
-- @order run_id, rank, device_type DESC, device, bucket
-- @use allocators
-- @needs allocator events (profile_memory=True)
-- @plot area x=start_ns y=peak_allocated_bytes,peak_reserved_bytes by=run_id,rank,device_type,device bands=phase-ranges
WITH changes AS (
    SELECT
        run_group, run_id, rank, device_type, device, start_ns, bytes, allocated_bytes, reserved_bytes,
        min(start_ns) OVER pool AS first_ns, max(start_ns) OVER pool + 1 AS end_ns,
        row_number() OVER (pool ORDER BY start_ns, addr) - 1 AS event
    FROM memory_events
    WHERE is_allocator('{device_type}', device_type)
    WINDOW pool AS (PARTITION BY run_group, run_id, rank, device_type, device)
),
numbered AS (
    SELECT
        *,
        CASE WHEN $buckets > 0
            THEN greatest(1, ceil((end_ns - first_ns) / nullif($buckets, 0)))::BIGINT END AS width_ns,
        coalesce((start_ns - first_ns) // width_ns, event) AS bucket
    FROM changes
),
filled AS (
    SELECT
        run_group, run_id, rank, device_type, device, bucket, any_value(width_ns) AS width_ns,
        any_value(first_ns) AS first_ns, any_value(end_ns) AS end_ns, min(start_ns) AS event_ns, count(*) AS events,
        sum(bytes)::BIGINT AS change_bytes,
        arg_max(allocated_bytes, event) AS allocated_bytes, arg_max(reserved_bytes, event) AS reserved_bytes,
        max(allocated_bytes) AS most_allocated, max(reserved_bytes) AS most_reserved
    FROM numbered
    GROUP BY run_group, run_id, rank, device_type, device, bucket
),
every_bucket AS (
    SELECT
        run_group, run_id, rank, device_type, device, width_ns, first_ns, end_ns,
        unnest(
            CASE WHEN width_ns IS NULL THEN range(max(bucket) + 1)
                ELSE range((end_ns - first_ns - 1) // width_ns + 1) END
        ) AS bucket
    FROM filled
    GROUP BY run_group, run_id, rank, device_type, device, width_ns, first_ns, end_ns
),
carried AS (
    SELECT
        b.*, f.event_ns, coalesce(events, 0) AS events, coalesce(change_bytes, 0) AS change_bytes,
        last_value(allocated_bytes IGNORE NULLS) OVER so_far AS allocated_bytes,
        last_value(reserved_bytes IGNORE NULLS) OVER so_far AS reserved_bytes, most_allocated, most_reserved
    FROM every_bucket b
    LEFT JOIN filled f ON f.run_id = b.run_id AND f.rank = b.rank AND f.device_type IS NOT DISTINCT FROM b.device_type
        AND f.device IS NOT DISTINCT FROM b.device AND f.bucket = b.bucket
        AND f.run_group IS NOT DISTINCT FROM b.run_group
    WINDOW so_far AS (
        PARTITION BY b.run_group, b.run_id, b.rank, b.device_type, b.device ORDER BY b.bucket
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
SELECT
    run_group, run_id, rank, device_type, device, bucket,
    coalesce(bucket * width_ns, event_ns - first_ns) AS start_ns,
    coalesce(
        least(width_ns, end_ns - first_ns - bucket * width_ns),
        lead(event_ns) OVER in_order - event_ns, 0
    ) AS span_ns,
    events, change_bytes, allocated_bytes,
    -- An event is the moment after it; a bucket begins with what the one before left.
    CASE WHEN width_ns IS NULL THEN allocated_bytes
        ELSE greatest(
            most_allocated, lag(allocated_bytes) OVER in_order,
            CASE WHEN bucket = 0 THEN allocated_bytes - change_bytes END
        )
    END AS peak_allocated_bytes,
    CASE WHEN width_ns IS NULL THEN reserved_bytes
        ELSE greatest(most_reserved, lag(reserved_bytes) OVER in_order)
    END AS peak_reserved_bytes
FROM carried
WINDOW in_order AS (PARTITION BY run_group, run_id, rank, device_type, device ORDER BY bucket)
