-- Kernels reach neither the bandwidth nor the arithmetic of the GPU
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
-- @use findings, kernel_limits, workload_kinds
-- @needs metrics of Nsight Compute or nvprof (and durations)
WITH limited AS (
    SELECT *, dur_ns * (1 - greatest(memory_pct, compute_pct) / 100) AS gain_ns
    FROM launch_limits
    WHERE greatest(memory_pct, compute_pct) < 60
        AND run_id IN (SELECT run_id FROM workload_kinds WHERE kind = 'counters only')
),
sums AS (
    SELECT * FROM limit_sums('limited')
)
SELECT
    g.run_group, run_id, s.gain_ns / ranks AS saving_ns,
    printf('%s, %s in total; most to gain: %s', counted(s.launches, 'kernel', 'kernels'), ms(s.ns), s.most_text)
        AS evidence,
    s.most.rank, s.most.device, NULL::BIGINT AS start_ns, NULL::BIGINT AS end_ns, NULL AS source,
    CASE
        WHEN s.most.waves < 0.5 THEN 'small grid'
        -- Kernels of products have few warps on purpose.
        WHEN s.most.occupancy_pct <= 50 AND s.most.limiter IN ('registers', 'shared memory')
            AND NOT regexp_matches(s.most.kernel, '(?i)gemm|conv|cutlass|nvjet') THEN s.most.limiter
    END AS situation
FROM sums s JOIN run_spans g USING (run_id)
