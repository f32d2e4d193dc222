-- How much memory is allocated and reserved over time?
--
-- From the allocator events of the trace (torch.profiler with profile_memory) and from the history of memory snapshots,
-- per device, from the first event to the last: in buckets of equal length, in whole ns, or one row per event with
-- buckets = 0. The peak of a bucket includes the memory allocated at its start. Nsight Systems records driver
-- allocations: reserved_bytes alone. Of snapshots, allocated bytes are those that the program requested, before the
-- allocator rounds them up (`memory-live` and `memory-owners` say who did).
-- @param buckets int[0..100000] = 50   Number of buckets; 0: a row per event.
-- @param device_type all|gpu|cuda|hip|xpu|cpu = all   Which allocator; cuda includes AMD's GPUs, as in torch.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device_type text        cpu, cuda, hip or xpu.
-- @column device index            Device; -1 for the CPU.
-- @column source text             memory_events, or allocator_events: a memory snapshot.
-- @column bucket index            Bucket or event, from 0.
-- @column start_ns ns             Its start, since the first event of the run (`run_zeros`).
-- @column span_ns ns              Its length; for an event, the time until the next.
-- @column events count            Allocations and frees in it.
-- @column change_bytes B          Allocated - freed bytes.
-- @column allocated_bytes B       Allocated at its end.
-- @column peak_allocated_bytes B  Peak of allocated bytes in it.
-- @column peak_reserved_bytes B   Peak of reserved bytes in it.
-- @main run_id, rank, device_type, device, source, start_ns, change_bytes, peak_allocated_bytes, peak_reserved_bytes
-- @order run_id, rank, device_type DESC, device, source, bucket
-- @use allocator, memory, run_zeros
-- @needs allocator events (profile_memory=True) or a memory snapshot
-- @full allocator events
-- @plot area x=start_ns y=peak_allocated_bytes,peak_reserved_bytes by=run_id,rank,device_type,device,source
--       bands=phase-ranges
WITH events AS (
    SELECT
        run_group, run_id, rank, device_type, device, 'memory_events' AS source, start_ns, file_row AS place, bytes,
        allocated_bytes, reserved_bytes
    FROM memory_events
    UNION ALL
    SELECT
        run_group, run_id, rank, 'cuda', device, 'allocator_events', start_ns, event, change_bytes, held_bytes,
        reserved_bytes
    FROM allocator_totals
),
pools AS MATERIALIZED (
    SELECT
        row_number() OVER ()::INTEGER AS pool, run_group, run_id, rank, device_type, device, source,
        min(start_ns) AS first_ns, max(start_ns) + 1 AS end_ns,
        CASE WHEN $buckets > 0
            THEN greatest(1, ceil((max(start_ns) + 1 - min(start_ns)) / nullif($buckets, 0)))::BIGINT END AS width_ns
    FROM events
    WHERE is_allocator('{device_type}', device_type)
    GROUP BY run_group, run_id, rank, device_type, device, source
),
changes AS (
    SELECT
        p.pool, p.first_ns, p.width_ns, e.start_ns, e.bytes, e.allocated_bytes, e.reserved_bytes,
        row_number() OVER (PARTITION BY p.pool ORDER BY e.start_ns, e.place) - 1 AS event
    FROM events e
    JOIN pools p ON p.run_id = e.run_id AND p.rank = e.rank AND p.source = e.source
        AND p.device_type IS NOT DISTINCT FROM e.device_type AND p.device IS NOT DISTINCT FROM e.device
),
filled AS (
    SELECT
        pool, coalesce((start_ns - first_ns) // width_ns, event) AS bucket, min(start_ns) AS event_ns,
        count(*) AS events, sum(bytes)::BIGINT AS change_bytes,
        arg_max(allocated_bytes, event) AS allocated_bytes, arg_max(reserved_bytes, event) AS reserved_bytes,
        max(allocated_bytes) AS most_allocated, max(reserved_bytes) AS most_reserved
    FROM changes
    GROUP BY pool, bucket
),
every_bucket AS (
    SELECT
        pool,
        unnest(
            CASE WHEN width_ns IS NULL THEN range(last_bucket + 1)
                ELSE range((end_ns - first_ns - 1) // width_ns + 1) END
        ) AS bucket
    FROM pools JOIN (SELECT pool, max(bucket) AS last_bucket FROM filled GROUP BY pool) USING (pool)
),
carried AS (
    SELECT
        p.*, bucket, f.event_ns, coalesce(events, 0) AS events, coalesce(change_bytes, 0) AS change_bytes,
        last_value(allocated_bytes IGNORE NULLS) OVER so_far AS allocated_bytes,
        last_value(reserved_bytes IGNORE NULLS) OVER so_far AS reserved_bytes, most_allocated, most_reserved
    FROM every_bucket JOIN pools p USING (pool) LEFT JOIN filled f USING (pool, bucket)
    WINDOW so_far AS (PARTITION BY pool ORDER BY bucket ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
SELECT
    run_group, run_id, rank, device_type, device, source, bucket,
    coalesce(first_ns + bucket * width_ns, event_ns) - zero_ns AS start_ns,
    coalesce(
        least(width_ns, end_ns - first_ns - bucket * width_ns),
        lead(event_ns) OVER in_order - event_ns, 0
    ) AS span_ns,
    events, change_bytes, allocated_bytes,
    -- An event's figure is after it; a bucket starts with the last figure of the previous one.
    CASE WHEN width_ns IS NULL THEN allocated_bytes
        ELSE greatest(
            most_allocated, lag(allocated_bytes) OVER in_order,
            CASE WHEN bucket = 0 THEN allocated_bytes - change_bytes END
        )
    END AS peak_allocated_bytes,
    CASE WHEN width_ns IS NULL THEN reserved_bytes
        ELSE greatest(most_reserved, lag(reserved_bytes) OVER in_order)
    END AS peak_reserved_bytes
FROM carried JOIN run_zeros USING (run_id)
WINDOW in_order AS (PARTITION BY pool ORDER BY bucket)
