-- Matrix work in fp32 beside idle tensor cores
--
-- Saving: Half of the time of the gemm and convolution kernels whose names say fp32 arithmetic (ffma, sgemm, f32f32,
-- winograd, fft), over the GPUs; on chips of compute capability 8.0 and up. Half is a guess, not a measurement: what is
-- bound by memory does not get faster, what is bound by arithmetic gets several times as fast.
-- See: kernel-share
-- Try: torch.set_float32_matmul_precision('high') and torch.backends.cudnn.allow_tf32 = True, or autocast to bf16;
-- check the accuracy.
-- @use run_gpus, time_sums
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH matrix_kernels AS (
    SELECT run_id, sum(calls) AS calls, sum(total_ns) AS ns
    FROM kernel_sums JOIN kernel_names USING (run_id, name)
    WHERE family IN ('gemm', 'convolution')
        AND regexp_matches(
            name, 'ffma|sgemm|[cf]f?32f32_[cf]f?32f32_|cf32cf32|fft2d|(winograd|engine|gemmSN|gemv).*<(float|T1)'
        )
        AND NOT regexp_matches(name, 'tf32|tensor|hmma|__half|bfloat')
    GROUP BY run_id
),
kernel_time AS (
    SELECT run_id, sum(total_ns) AS ns FROM kernel_sums GROUP BY run_id
)
SELECT
    g.run_group, run_id, m.ns / 2.0 / g.gpus AS saving_ns,
    printf('%d gemm and convolution kernels in fp32 take %s, %.1f %% of kernel time, on compute capability %s',
        m.calls::BIGINT, ms(m.ns), 100.0 * m.ns / k.ns, r.compute_capability) AS evidence
FROM matrix_kernels m JOIN kernel_time k USING (run_id) JOIN run_gpus g USING (run_id) JOIN runs r USING (run_id)
WHERE try_cast(r.compute_capability AS DOUBLE) >= 8
