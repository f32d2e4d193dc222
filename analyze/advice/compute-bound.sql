-- Kernels are limited by arithmetic
--
-- Saving: Half of the duration of kernels that reach 60 % or more of the peak of their arithmetic unit, mean over the
-- ranks. Half is an estimate: tensor cores or a smaller type are at least twice as fast.
-- Sure: estimated
-- See: roofline
-- Try: tensor cores where they are not used (TF32, bf16), smaller types (bf16, fp8), fewer operations (another
-- algorithm); the kernel itself is close to what the GPU can do.
-- @use findings, kernel_limits, workload_kinds
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns / 2.0 AS gain_ns
    FROM launch_limits
    WHERE compute_pct >= 60 AND compute_pct > coalesce(memory_pct, 0)
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
