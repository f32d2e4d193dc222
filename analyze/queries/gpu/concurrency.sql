-- Do kernels and copies run concurrently, and are the copies large and fast?
--
-- The four findings of NVIDIA's Visual Profiler, per device. Kernel concurrency: time with two or more kernels / time
-- with any kernel. Copy overlap: share of the memcpy time with concurrent kernels. Copy throughput: bytes / duration of
-- the copies between host and device, compared with the published peak of the PCIe link in one direction. Small copies:
-- those under 64 KiB, which cannot saturate the link. `copies` lists the copies by kind.
-- @param small_kib number[0..1e9] = 64   Copies of fewer KiB are small.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column kernel_ns ns            Union of kernels.
-- @column concurrent_ns ns        Time with two or more kernels.
-- @column kernel_concurrency_pct %   Share of kernel_ns.
-- @column memcpy_ns ns            Union of memcpys of all kinds.
-- @column copy_overlap_ns ns      Part of memcpy_ns with concurrent kernels.
-- @column copy_overlap_pct %      Share of memcpy_ns; empty without memcpys.
-- @column host_copies count       Copies between host and device.
-- @column host_bytes B            Their bytes; empty if the trace has none.
-- @column host_gb_per_s GB/s      Their bytes / the sum of their durations.
-- @column host_link_pct %         Share of the link's peak; empty if schemas/devices.toml has none.
-- @column small_copies count      Small copies between host and device; empty if the trace has no sizes.
-- @column small_copies_pct %      Share of the host copies that have a size.
-- @column small_time_pct %        Their share of the time of these copies.
-- @main run_id, rank, device, kernel_ns, kernel_concurrency_pct, memcpy_ns, copy_overlap_pct, host_gb_per_s
-- @order run_id, rank, device
-- @use arithmetic, gpu_timeline, peaks
-- @by device
-- @needs work on GPUs
-- @pass gpu
WITH lengths AS (
    SELECT
        track, coalesce(sum(end_ns - start_ns) FILTER (kernels > 0), 0)::BIGINT AS kernel_ns,
        coalesce(sum(end_ns - start_ns) FILTER (kernels > 1), 0)::BIGINT AS concurrent_ns,
        coalesce(sum(end_ns - start_ns) FILTER (memcpys > 0), 0)::BIGINT AS memcpy_ns,
        coalesce(sum(end_ns - start_ns) FILTER (memcpys > 0 AND kernels > 0), 0)::BIGINT AS copy_overlap_ns
    FROM gpu_timeline
    GROUP BY track
),
host_copies AS (
    SELECT
        run_id, rank, device, count(*) AS host_copies, sum(bytes)::BIGINT AS host_bytes,
        bytes_per_ns(bytes, dur_ns) AS host_gb_per_s,
        any_value(peak_gb_per_s) AS peak_gb_per_s,
        -- A copy without a size is neither small nor large.
        count(bytes) AS sized_copies, sum(dur_ns) FILTER (bytes IS NOT NULL) AS sized_ns,
        count(*) FILTER (bytes < $small_kib * 1024::BIGINT) AS small_copies,
        coalesce(sum(dur_ns) FILTER (bytes < $small_kib * 1024::BIGINT), 0) AS small_ns
    FROM memcpys LEFT JOIN copy_peaks USING (run_id, kind)
    WHERE kind IN ('HtoD', 'DtoH')
    GROUP BY run_id, rank, device
)
SELECT
    t.run_group, t.run_id, t.rank, t.device,
    kernel_ns, concurrent_ns, pct(concurrent_ns, kernel_ns) AS kernel_concurrency_pct,
    memcpy_ns, copy_overlap_ns, pct(copy_overlap_ns, memcpy_ns) AS copy_overlap_pct,
    coalesce(h.host_copies, 0) AS host_copies,
    CASE WHEN h.host_copies > 0 THEN host_bytes ELSE 0 END AS host_bytes, host_gb_per_s,
    pct(host_gb_per_s, peak_gb_per_s) AS host_link_pct,
    CASE WHEN h.host_copies IS NULL THEN 0 WHEN sized_copies > 0 THEN small_copies END AS small_copies,
    pct(small_copies, sized_copies) AS small_copies_pct, pct(small_ns, sized_ns) AS small_time_pct
FROM gpu_tracks t
JOIN lengths USING (track)
LEFT JOIN host_copies h ON h.run_id = t.run_id AND h.rank = t.rank AND h.device IS NOT DISTINCT FROM t.device
