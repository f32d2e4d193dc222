-- Kernels are limited by the bandwidth of device memory
--
-- Saving: Half of the duration of kernels that reach 60 % or more of the bandwidth of device memory, mean over the
-- ranks. Half is an estimate: fused with the kernel before it, a kernel reads once less.
-- Sure: estimated
-- See: roofline
-- Try: move less: fuse elementwise kernels (torch.compile), smaller types (bf16), in-place operators, recompute in
-- place of storing; more occupancy does not help.
-- @use findings, kernel_limits, workload_kinds
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns / 2.0 AS gain_ns
    FROM launch_limits
    WHERE memory_pct >= 60 AND memory_pct >= coalesce(compute_pct, 0)
        AND run_id IN (SELECT run_id FROM workload_kinds WHERE kind = 'counters only')
),
sums AS (
    SELECT * FROM limit_sums('limited')
)
SELECT
    g.run_group, run_id, s.gain_ns / ranks AS saving_ns,
    printf('%s, %s in total; most to gain: %s', counted(s.launches, 'kernel', 'kernels'), ms(s.ns), s.most_text)
        AS evidence,
    s.most.rank, s.most.device, NULL::BIGINT AS start_ns, NULL::BIGINT AS end_ns, NULL AS source
FROM sums s JOIN run_spans g USING (run_id)
