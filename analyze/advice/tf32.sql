-- Matrix kernels in fp32 do not use tensor cores
--
-- Saving: Half of the time of gemm and convolution kernels whose names indicate fp32 arithmetic (ffma, sgemm, f32f32,
-- winograd, fft), mean over the GPUs, on compute capability 8.0 and higher. Half is an estimate: memory-bound kernels
-- do not get faster, compute-bound kernels get several times as fast.
-- Sure: estimated
-- See: kernel-share
-- Try: torch.set_float32_matmul_precision('high') and torch.backends.cudnn.allow_tf32 = True, or autocast to bf16;
-- check the accuracy.
-- @use findings, time_sums
-- @needs gemm and convolution kernels in fp32, on compute capability 8.0 and up
WITH matrix_names AS (
    SELECT run_id, name
    FROM kernel_names
    WHERE family IN ('gemm', 'convolution')
        AND regexp_matches(
            name, 'ffma|sgemm|[cf]f?32f32_[cf]f?32f32_|cf32cf32|fft2d|(winograd|engine|gemmSN|gemv).*<(float|T1)'
        )
        AND NOT regexp_matches(name, 'tf32|tensor|hmma|__half|bfloat')
),
matrix_kernels AS (
    SELECT k.* FROM tracked_kernels k SEMI JOIN matrix_names n USING (run_id, name)
)
SELECT
    g.run_group, run_id, m.covered_ns / 2.0 / g.gpus AS saving_ns,
    printf('%s (gemm, convolution) in fp32, %s in total (%.1f %% of kernel time), on compute capability %s',
        counted(m.calls, 'kernel', 'kernels'), ms(m.ns), 100.0 * m.ns / nullif(k.ns, 0), r.compute_capability)
        || m.from_text AS evidence,
    m.rank, m.device, m.start_ns, m.end_ns, m.source
FROM kernel_findings('matrix_kernels') m
JOIN run_kernel_time k USING (run_id)
JOIN run_gpus g USING (run_id)
JOIN runs r USING (run_id)
WHERE try_cast(r.compute_capability AS DOUBLE) >= 8
