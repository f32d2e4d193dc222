-- What the profiler itself took: ranges that Kineto writes as overhead (Activity Buffer Request, Lazy Function Loading,
-- Buffer Flush ...). Their time is the recording's, not the program's.
-- @view profiler_overhead  a row is such a range.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column pid id                Process.
-- @column tid id                Thread.
-- @column name text             What the profiler did.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW profiler_overhead AS
SELECT run_id, rank, run_group, pid, tid, name, start_ns, start_ns + dur_ns AS end_ns
FROM ranges
WHERE origin = 'overhead';
