-- How much memory was allocated and reserved at the peak, per device?
--
-- From the allocator events of the trace (torch.profiler with profile_memory) and from memory snapshots; for runs
-- without either, from the collector's step_metrics: peaks over the devices of the process, since the start of the run.
-- The history of a snapshot has requested bytes, which the allocator rounds up: its peak of them is that of
-- torch.cuda.memory_stats() if the history is complete. Snapshots of `collect` also have torch's own peaks, since the
-- program started or reset them: torch.cuda.max_memory_allocated(). Nsight Systems records the memory that a process
-- takes from the driver: reserved_bytes, which includes memory outside the caching allocator (NCCL, cuBLAS, modules),
-- and pinned host memory (device -1). It does not record allocated bytes, so step_metrics have a row, too.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device_type text        cpu, cuda, hip or xpu.
-- @column device index            Device; empty for all devices of the process together.
-- @column allocated_bytes B       Peak of allocated bytes, also before the first event.
-- @column requested_bytes B       Peak of bytes that the program requested; NULL if not recorded.
-- @column reserved_bytes B        Peak of bytes that the caching allocator held.
-- @column source text             memory_events, allocator_stats (what torch counted when a snapshot was taken),
--                                 allocator_events (the history of a snapshot) or step_metrics.
-- @main run_id, rank, device_type, device, allocated_bytes, requested_bytes, reserved_bytes, source
-- @order run_id, rank, device_type DESC, device, source
-- @use allocator, memory
-- @needs allocator events (profile_memory=True, or nsys with --cuda-memory-usage), a memory snapshot, or the
--       collector's peaks of memory
-- @plot bars y=run_id,rank,device_type,device x=allocated_bytes
-- @drill rank memory-timeline rank={rank} device={device}
-- @drill allocated_bytes memory-by-category rank={rank} device={device}
WITH traced AS (
    SELECT
        run_group, run_id, rank, device_type, device,
        -- If the first event is a free, more was allocated before it.
        greatest(max(allocated_bytes), arg_min(allocated_bytes - bytes, (start_ns, file_row))) AS allocated_bytes,
        NULL::BIGINT AS requested_bytes, max(reserved_bytes) AS reserved_bytes, 'memory_events' AS source
    FROM memory_events
    GROUP BY ALL
    UNION ALL BY NAME
    SELECT
        run_group, run_id, rank, 'cuda' AS device_type, device,
        max(value) FILTER (name = 'allocated_bytes.all.peak') AS allocated_bytes,
        max(value) FILTER (name = 'requested_bytes.all.peak') AS requested_bytes,
        max(value) FILTER (name = 'reserved_bytes.all.peak') AS reserved_bytes, 'allocator_stats' AS source
    FROM allocator_stats
    GROUP BY ALL
    HAVING max(value) FILTER (name = 'reserved_bytes.all.peak') > 0
    UNION ALL BY NAME
    SELECT
        run_group, run_id, rank, 'cuda' AS device_type, device, max(held_bytes) AS requested_bytes,
        max(reserved_bytes) AS reserved_bytes, 'allocator_events' AS source
    FROM allocator_totals
    GROUP BY ALL
),
timed AS (
    SELECT
        run_group, run_id, rank, 'cuda' AS device_type, NULL::INTEGER AS device,
        max(max_allocated_bytes) AS allocated_bytes, max(max_reserved_bytes) AS reserved_bytes, 'step_metrics' AS source
    FROM step_metrics
    WHERE max_allocated_bytes > 0 AND (run_id, rank) NOT IN (
        SELECT (run_id, rank) FROM traced WHERE is_allocator('gpu', device_type) AND allocated_bytes IS NOT NULL
    )
    GROUP BY ALL
)
SELECT * FROM traced UNION ALL BY NAME SELECT * FROM timed
