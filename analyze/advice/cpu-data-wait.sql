-- The loop on the CPU waits for data
--
-- Saving: Time in the phase `data`, mean over the ranks; of recordings on CPUs only.
-- See: phases
-- Try: more DataLoader workers (not more than spare cores), persistent_workers, a cheaper transform, or decoding the
-- data beforehand; workers and operators share the cores (OMP_NUM_THREADS).
-- @use cpu_only, findings, phases
-- @needs operators, and ranges or a backward pass (time in the phase `data`)
WITH waits AS (
    SELECT run_id, rank, start_ns, start_ns + dur_ns AS end_ns
    FROM phase_ranges SEMI JOIN cpu_only_tracks USING (run_id, rank)
    WHERE phase = 'data'
),
sums AS (
    SELECT
        run_id, count(*) AS waits, sum(end_ns - start_ns) AS ns,
        longest(rank, NULL::INTEGER, start_ns, end_ns) AS longest
    FROM waits
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, s.ns / g.ranks AS saving_ns,
    printf('%s for data, %s in total, the longest %s', counted(s.waits, 'wait', 'waits'), ms(s.ns),
        ms(s.longest.end_ns - s.longest.start_ns)) AS evidence,
    unnest(s.longest), NULL AS source
FROM sums s JOIN run_spans g USING (run_id)
