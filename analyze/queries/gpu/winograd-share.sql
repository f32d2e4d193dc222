-- What share of the time goes to Winograd convolutions?
--
-- By the algorithm in the kernel name. The plain matrix products inside cuDNN's non-fused Winograd are gemm by name and
-- do not count.
-- @column winograd_ns ns          Time of kernels whose algorithm is winograd.
-- @column conv_ns ns              Time of convolution kernels.
-- @column kernel_ns ns            Time of all kernels.
-- @column kernel_time_pct %       Winograd's share of kernel time.
-- @column conv_time_pct %         Winograd's share of convolution time; empty without convolutions.
-- @main winograd_ns, conv_ns, kernel_ns, kernel_time_pct, conv_time_pct
-- @use arithmetic, time_sums
-- @by device, stream
-- @needs kernels, or sums of kernels (nvprof)
-- @pass gpu
WITH summed AS (
    SELECT
        run_group,
        coalesce(sum(total_ns) FILTER (algorithm = 'winograd'), 0)::BIGINT AS winograd_ns,
        coalesce(sum(total_ns) FILTER (family = 'convolution'), 0)::BIGINT AS conv_ns,
        sum(total_ns)::BIGINT AS kernel_ns
    FROM kernel_sums JOIN kernel_names USING (run_id, name)
    GROUP BY run_group
)
SELECT
    run_group, winograd_ns, conv_ns, kernel_ns,
    pct(winograd_ns, kernel_ns) AS kernel_time_pct,
    pct(winograd_ns, conv_ns) AS conv_time_pct
FROM summed
