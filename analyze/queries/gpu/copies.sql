-- How large and how fast are the copies, by kind?
--
-- Bytes / duration, compared with the published peak of the link: PCIe for copies between host and device, NVLink for
-- copies between GPUs (PCIe if the GPU has none), half of the memory bandwidth within a device, since each byte is read
-- and written.
-- @param small_kib number[0..1e9] = 64   Copies of fewer KiB are small.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU that the copy ran on.
-- @column kind text               HtoD, DtoH, DtoD, PtoP, HtoH or Unknown.
-- @column copies count            Copies.
-- @column bytes B                 Their bytes; empty if the trace has none.
-- @column total_ns ns             Sum of durations.
-- @column gb_per_s GB/s           Bytes / durations.
-- @column link_pct %              Share of the link's peak; empty if schemas/devices.toml has none.
-- @column small_copies count      Small copies; empty if the trace has no sizes.
-- @column small_copies_pct %      Share of the copies that have a size.
-- @column small_time_pct %        Their share of the time of these copies.
-- @main run_id, rank, device, kind, copies, bytes, total_ns, gb_per_s, link_pct
-- @order run_id, rank, device, total_ns DESC, kind
-- @use arithmetic, peaks
-- @by device, stream
-- @needs memcpys
-- @pass gpu
-- @plot bars y=run_id,rank,device,kind x=total_ns per=step
-- @drill kind memcpy kind={kind}
WITH by_kind AS (
    SELECT
        run_group, run_id, rank, device, kind, count(*) AS copies, sum(bytes)::BIGINT AS bytes,
        sum(dur_ns)::BIGINT AS total_ns,
        bytes_per_ns(bytes, dur_ns) AS gb_per_s,
        -- A copy without a size is neither small nor large.
        count(bytes) AS sized, sum(dur_ns) FILTER (bytes IS NOT NULL) AS sized_ns,
        CASE WHEN sized > 0 THEN count(*) FILTER (bytes < $small_kib * 1024::BIGINT) END AS small_copies,
        coalesce(sum(dur_ns) FILTER (bytes < $small_kib * 1024::BIGINT), 0)::BIGINT AS small_ns
    FROM memcpys
    GROUP BY run_group, run_id, rank, device, kind
)
SELECT
    run_group, run_id, rank, device, kind, copies, bytes, total_ns, gb_per_s, pct(gb_per_s, peak_gb_per_s) AS link_pct,
    small_copies, pct(small_copies, sized) AS small_copies_pct, pct(small_ns, sized_ns) AS small_time_pct
FROM by_kind LEFT JOIN copy_peaks USING (run_id, kind)
