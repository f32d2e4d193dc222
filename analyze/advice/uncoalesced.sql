-- Access to global memory is not coalesced
--
-- Saving: Duration x share of the bytes of global memory that are moved and not used, of kernels that use less than
-- half of them, mean over the ranks.
-- Overlaps: below-roof, memory-bound
-- Sure: estimated
-- See: roofline
-- Try: let neighbouring threads access neighbouring addresses: contiguous tensors (.contiguous(), channels_last),
-- another loop order, a transpose through shared memory.
-- @use findings
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns * (1 - used_pct / 100) AS gain_ns
    FROM counted_launches
    WHERE used_pct < 50
)
SELECT
    * EXCLUDE (most) REPLACE (evidence || printf('; %.0f %% of the bytes are used', most.used_pct) AS evidence)
FROM limit_findings('limited')
