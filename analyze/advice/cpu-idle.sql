-- The CPU is not in an operator
--
-- Saving: Time in which no thread of a process runs an operator or waits for data, mean over the ranks; of recordings
-- on CPUs only.
-- See: op-tree
-- Try: Python between operators, waiting or other libraries: record stacks (with_stack=True) to see it; fewer and
-- larger operators, work on tensors in place of Python loops, preprocessing in workers.
-- @use cpu_only, findings, intervals
-- @needs operators
WITH spans AS (
    SELECT track, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM cpu_only_times WHERE operator GROUP BY track
),
outside AS (
    SELECT t.run_id, t.rank, s.start_ns, s.end_ns
    FROM intervals_subtract('spans', 'cpu_only_times') s JOIN cpu_only_tracks t USING (track)
)
FROM interval_findings('outside', 'interval', 'intervals')
