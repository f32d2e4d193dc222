-- Kernels are limited by arithmetic
--
-- Saving: Half of the duration of kernels that reach 60 % or more of the peak of their arithmetic unit, mean over the
-- ranks. Half is an estimate: tensor cores or a smaller type are at least twice as fast.
-- Sure: estimated
-- See: roofline
-- Try: tensor cores where they are not used (TF32, bf16), smaller types (bf16, fp8), fewer operations (another
-- algorithm); the kernel itself is close to what the GPU can do.
-- @use findings
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns / 2.0 AS gain_ns
    FROM counted_launches
    WHERE compute_pct >= 60 AND compute_pct > coalesce(memory_pct, 0)
)
SELECT * EXCLUDE (most) FROM limit_findings('limited')
