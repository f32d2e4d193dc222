-- How much is copied, in which direction, and how fast?
--
-- Durations are summed over all ranks, devices and streams: concurrent copies count twice, as in `nsys stats -r
-- cuda_gpu_mem_time_sum`. gb_per_s is bytes / duration, decimal. A small copy is one under 64 KiB: its time is latency,
-- not bandwidth. Ranks with only a printed summary (nvprof) have no sizes.
-- @column kind text               HtoD, DtoH, DtoD, PtoP (between GPUs) ...; Unified ...: migrated pages of managed
--                                 memory.
-- @column calls count             Copies.
-- @column bytes B                 Sum of sizes.
-- @column total_ns ns             Sum of durations.
-- @column avg_ns ns               Mean duration.
-- @column min_ns ns               Shortest.
-- @column max_ns ns               Longest.
-- @column gb_per_s GB/s           Bytes per duration, decimal; empty if no time passed.
-- @column avg_bytes B             Mean size.
-- @column max_bytes B             Largest.
-- @column small_pct %             Share of the copies that are under 64 KiB.
-- @column copy_time_pct %         Share of the time of all copies.
-- @main kind, calls, bytes, total_ns, avg_ns, gb_per_s, copy_time_pct
-- @order total_ns DESC, kind
-- @use arithmetic
-- @by device, stream
-- @needs memcpys, or sums of memcpys (nvprof)
-- @pass gpu
-- @plot bars y=kind x=total_ns label=copy_time_pct per=step,gpu
-- @drill kind copies kind={kind}
WITH copies AS (
    SELECT run_group, kind, 1 AS calls, bytes, dur_ns, dur_ns AS min_ns, dur_ns AS max_ns FROM memcpys
    UNION ALL
    SELECT run_group, regexp_extract(name, '^\[CUDA memcpy (\w+)\]', 1), calls, NULL, total_ns, min_ns, max_ns
    FROM gpu_summary ANTI JOIN gpu_work USING (run_id, rank)
    WHERE starts_with(name, '[CUDA memcpy ')
)
SELECT
    run_group, kind, sum(calls)::BIGINT AS calls, sum(bytes)::BIGINT AS bytes, sum(dur_ns)::BIGINT AS total_ns,
    sum(dur_ns) / sum(calls) FILTER (dur_ns IS NOT NULL) AS avg_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns,
    -- B / ns is GB/s; a copy without a size (or a duration) counts in neither.
    bytes_per_ns(bytes, dur_ns) AS gb_per_s,
    avg(bytes) AS avg_bytes, max(bytes) AS max_bytes,
    pct(count(*) FILTER (bytes < 65536), count(bytes)) AS small_pct,
    pct(sum(dur_ns), sum(sum(dur_ns)) OVER (PARTITION BY run_group)) AS copy_time_pct
FROM copies
GROUP BY run_group, kind
