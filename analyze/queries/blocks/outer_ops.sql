-- Operators that no other operator encloses, one after the other on each thread.
-- @use cpu_tracks, intervals
-- @view outer_ops  a row is an operator that no other operator encloses.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
-- @column name text             Name.
-- @column op_id id              The operator that it belongs to, by PyTorch's External id.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW outer_ops AS
WITH _ops AS (
    SELECT * FROM cpu_intervals WHERE kind = 'op'
)
SELECT run_group, run_id, rank, tid, name, op_id, start_ns, end_ns
FROM intervals_reached('_ops')
WHERE coalesce(start_ns >= reached_ns, true);

-- @view outer_op_threads  a row is a thread that has operators.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread.
CREATE VIEW outer_op_threads AS SELECT DISTINCT run_id, rank, tid FROM cpu_ops;
