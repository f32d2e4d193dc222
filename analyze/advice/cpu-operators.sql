-- The operator with the most CPU time
--
-- Saving: Self time of the operator with most of it, mean over the ranks; of recordings on CPUs only.
-- Overlaps: cpu-data-wait
-- See: ops
-- Try: larger batches, and fewer and larger operators (torch.compile).
-- Try for products: bf16 (torch.autocast('cpu', dtype=torch.bfloat16)) on CPUs with AMX or AVX-512, as many threads as
-- physical cores (torch.set_num_threads, OMP_NUM_THREADS), torch.compile, larger batches.
-- Try for convolutions: channels_last, bf16, oneDNN (torch.backends.mkldnn), as many threads as physical cores
-- (torch.set_num_threads, OMP_NUM_THREADS).
-- Try for copies: fewer copies and conversions: no .contiguous(), .to() or .clone() in the loop, one layout and type
-- throughout.
-- @use cpu_only, findings
-- @needs operators
WITH sums AS (
    SELECT
        run_id, name, count(*) AS calls, sum(self_ns) AS ns,
        arg_max({'rank': rank, 'device': NULL::INTEGER, 'start_ns': start_ns, 'end_ns': start_ns + dur_ns},
            (self_ns, -start_ns, -rank)) AS longest
    FROM cpu_only_operators
    GROUP BY run_id, name
),
ranked AS (
    SELECT
        *, sum(ns) OVER (PARTITION BY run_id) AS all_ns, row_number() OVER by_time AS turn,
        lead(name) OVER by_time AS next_name, lead(ns) OVER by_time AS next_ns
    FROM sums
    WINDOW by_time AS (PARTITION BY run_id ORDER BY ns DESC, name)
),
threads AS (
    SELECT run_id, max(threads) AS threads FROM (
        SELECT run_id, rank, count(DISTINCT tid) AS threads FROM cpu_only_operators GROUP BY run_id, rank
    ) GROUP BY run_id
)
SELECT
    g.run_group, run_id, r.ns / g.ranks AS saving_ns,
    printf('%s: %s, %s self time, %.1f %% of that of all operators',
        r.name, counted(r.calls, 'call', 'calls'), ms(r.ns), 100.0 * r.ns / nullif(r.all_ns, 0))
        || coalesce(printf('; next %s (%s)', r.next_name, ms(r.next_ns)), '')
        || printf('; %s with operators', counted(t.threads, 'thread', 'threads')) AS evidence,
    unnest(r.longest), NULL AS source,
    CASE
        WHEN regexp_matches(r.name, 'mm$|linear|matmul|einsum|attention') THEN 'products'
        WHEN regexp_matches(r.name, 'conv') THEN 'convolutions'
        WHEN regexp_matches(r.name, 'copy|clone|contiguous|::to$|_to_copy|cat$') THEN 'copies'
    END AS situation
FROM ranked r JOIN threads t USING (run_id) JOIN run_spans g USING (run_id)
WHERE r.turn = 1
