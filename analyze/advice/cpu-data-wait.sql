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
)
FROM interval_findings('waits', 'wait for data', 'waits for data')
