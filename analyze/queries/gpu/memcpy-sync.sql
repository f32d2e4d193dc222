-- Which copies block the CPU unnecessarily?
--
-- Two rules of `nsys analyze`. pageable (cuda_memcpy_async): an asynchronous copy from or to pageable memory; CUDA
-- stages it through a buffer, which makes it synchronous. Pinned memory avoids that. synchronous (cuda_memcpy_sync): a
-- copy by a function without Async, except copies within a device and host-to-device copies of up to `small_bytes`,
-- which return before they are done. Copies without a recorded call match no rule; host-to-device copies without a
-- recorded size do not match `synchronous`.
-- @param small_bytes number[0..1e12] = 64000   Host-to-device copies up to this size (B) do not block; the default is
--                                 the limit of Nsight Systems.
-- @column rule text               pageable or synchronous.
-- @column name text               Runtime or driver function.
-- @column kind text               HtoD, DtoH, DtoD, PtoP ...
-- @column src_memory text         Kind of source memory.
-- @column dst_memory text         Kind of destination memory.
-- @column calls count             Copies.
-- @column bytes B                 Sum of sizes.
-- @column gpu_ns ns               Sum of durations on the GPU.
-- @column max_gpu_ns ns           Longest of them.
-- @column call_ns ns              Time in the calls, on the CPU.
-- @main rule, name, kind, calls, bytes, gpu_ns, call_ns
-- @order gpu_ns DESC, rule, name, kind, src_memory, dst_memory
-- @use api_roles, launches
-- @needs memcpys that block the CPU
-- @rows if a memcpy blocks the CPU
-- @full CUDA calls
WITH judged AS (
    SELECT
        m.*, c.name, c.dur_ns AS call_ns,
        CASE
            WHEN r.role = 'copy_async' THEN CASE WHEN 'Pageable' IN (src_memory, dst_memory) THEN 'pageable' END
            WHEN kind = 'HtoD' AND coalesce(bytes <= $small_bytes, true) THEN NULL
            WHEN kind = 'DtoD' AND src_device IS NOT DISTINCT FROM dst_device THEN NULL
            ELSE 'synchronous'
        END AS rule
    FROM memcpys m
    JOIN launch_calls('memcpys') c USING (run_id, rank, correlation_id)
    JOIN api_roles r ON r.name = c.name AND r.role IN ('copy', 'copy_async')
)
SELECT
    run_group, rule, name, kind, src_memory, dst_memory, count(*) AS calls, sum(bytes)::BIGINT AS bytes,
    sum(dur_ns)::BIGINT AS gpu_ns, max(dur_ns) AS max_gpu_ns, sum(call_ns)::BIGINT AS call_ns
FROM judged
WHERE rule IS NOT NULL
GROUP BY run_group, rule, name, kind, src_memory, dst_memory
