-- What the profiler itself took: ranges that Kineto writes as overhead (Activity Buffer Request, Lazy Function Loading,
-- Buffer Flush ...). Their time is the recording's, not the program's.
CREATE VIEW profiler_overhead AS
SELECT run_id, rank, run_group, pid, tid, name, start_ns, start_ns + dur_ns AS end_ns
FROM ranges
WHERE origin = 'overhead';
