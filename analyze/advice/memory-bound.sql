-- Kernels are limited by the bandwidth of device memory
--
-- Saving: Half of the duration of kernels that reach 60 % or more of the bandwidth of device memory, mean over the
-- ranks. Half is an estimate: fused with the kernel before it, a kernel reads once less.
-- Sure: estimated
-- See: roofline
-- Try: move less: fuse elementwise kernels (torch.compile), smaller types (bf16), in-place operators, recompute in
-- place of storing; more occupancy does not help.
-- @use findings
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns / 2.0 AS gain_ns
    FROM counted_launches
    WHERE memory_pct >= 60 AND memory_pct >= coalesce(compute_pct, 0)
)
SELECT * EXCLUDE (most) FROM limit_findings('limited')
