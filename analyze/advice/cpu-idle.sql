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
),
sums AS (
    SELECT
        run_id, count(*) AS pieces, sum(end_ns - start_ns) AS ns,
        longest(rank, NULL::INTEGER, start_ns, end_ns) AS longest
    FROM outside
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, s.ns / g.ranks AS saving_ns,
    printf('%s, %s in total, the longest %s', counted(s.pieces, 'interval', 'intervals'), ms(s.ns),
        ms(s.longest.end_ns - s.longest.start_ns)) AS evidence,
    unnest(s.longest), NULL AS source
FROM sums s JOIN run_spans g USING (run_id)
