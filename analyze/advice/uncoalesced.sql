-- Access to global memory is not coalesced
--
-- Saving: Duration x share of the bytes of global memory that are moved and not used, of kernels that use less than
-- half of them, mean over the ranks.
-- Overlaps: below-roof, memory-bound
-- Sure: estimated
-- See: roofline
-- Try: let neighbouring threads access neighbouring addresses: contiguous tensors (.contiguous(), channels_last),
-- another loop order, a transpose through shared memory.
-- @use findings, kernel_limits, workload_kinds
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns * (1 - used_pct / 100) AS gain_ns
    FROM launch_limits
    WHERE used_pct < 50
        AND run_id IN (SELECT run_id FROM workload_kinds WHERE kind = 'counters only')
),
sums AS (
    SELECT * FROM limit_sums('limited')
)
SELECT
    g.run_group, run_id, s.gain_ns / ranks AS saving_ns,
    printf('%s, %s in total; most to gain: %s', counted(s.launches, 'kernel', 'kernels'), ms(s.ns), s.most_text)
        || printf('; %.0f %% of the bytes are used', s.most.used_pct) AS evidence,
    s.most.rank, s.most.device, NULL::BIGINT AS start_ns, NULL::BIGINT AS end_ns, NULL AS source
FROM sums s JOIN run_spans g USING (run_id)
