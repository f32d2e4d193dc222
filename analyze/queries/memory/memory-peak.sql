-- How much memory was allocated and reserved at the peak, per device?
--
-- From the allocator events of the trace (torch.profiler with profile_memory); for runs without them, from the
-- collector's step_metrics: peaks over the devices of the process, since the start of the run. Nsight Systems records
-- the memory that a process takes from the driver: reserved_bytes, which includes memory outside the caching allocator
-- (NCCL, cuBLAS, modules), and pinned host memory (device -1). It does not record allocated bytes, so step_metrics have
-- a row, too.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device_type text        cpu, cuda, hip or xpu.
-- @column device index            Device; empty for all devices of the process together.
-- @column allocated_bytes B       Peak of allocated bytes, also before the first event.
-- @column reserved_bytes B        Peak of bytes that the caching allocator held.
-- @column source text             memory_events or step_metrics.
-- @main run_id, rank, device_type, device, allocated_bytes, reserved_bytes, source
-- @order run_id, rank, device_type DESC, device
-- @use memory
-- @needs allocator events (profile_memory=True, or nsys with --cuda-memory-usage), or the
--       collector's peaks of memory
-- @plot bars y=run_id,rank,device_type,device x=allocated_bytes
-- @drill rank memory-timeline rank={rank} device={device}
-- @drill allocated_bytes memory-by-category rank={rank} device={device}
WITH traced AS (
    SELECT
        run_group, run_id, rank, device_type, device,
        -- If the first event is a free, more was allocated before it.
        greatest(max(allocated_bytes), arg_min(allocated_bytes - bytes, (start_ns, file_row))) AS allocated_bytes,
        max(reserved_bytes) AS reserved_bytes, 'memory_events' AS source
    FROM memory_events
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
