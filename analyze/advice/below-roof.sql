-- Kernels reach neither the bandwidth nor the arithmetic peak of the GPU
--
-- Saving: Duration x (1 - share of the nearer peak), of kernels below 60 % of both, mean over the ranks: as if they
-- reached that peak.
-- Overlaps: uncoalesced
-- Sure: estimated
-- See: roofline
-- Try: more work per kernel (larger batches, fusion by torch.compile), so that latency is hidden.
-- Try for small grid: the grid does not fill the GPU: larger batches, split the reduction (split-K), or fuse or batch
-- such kernels.
-- Try for registers: fewer registers per thread (__launch_bounds__, smaller tiles), so that more warps hide latency.
-- Try for shared memory: less shared memory per block (smaller tiles, fewer stages), so that more warps hide latency.
-- @use findings
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns * (1 - greatest(memory_pct, compute_pct) / 100) AS gain_ns
    FROM counted_launches
    WHERE greatest(memory_pct, compute_pct) < 60
)
SELECT
    * EXCLUDE (most),
    CASE
        WHEN most.waves < 0.5 THEN 'small grid'
        -- Kernels of products have few warps on purpose.
        WHEN most.occupancy_pct <= 50 AND most.limiter IN ('registers', 'shared memory')
            AND NOT regexp_matches(most.kernel, '(?i)gemm|conv|cutlass|nvjet') THEN most.limiter
    END AS situation
FROM limit_findings('limited')
