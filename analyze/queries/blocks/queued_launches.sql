-- Launches that wait for their turn on a stream.
-- @use gpu_work, launch_calls
-- @keep queued_launches
-- @view queued_launches  a row is a launch call whose work the trace holds, on a stream.
-- It is queued from the start of the call to the start of its first work there (kernel, memcpy or memset).
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column stream id             CUDA stream.
-- @column correlation_id id     Joins the call and the work that it launched.
-- @column start_ns ns           Start of the call.
-- @column end_ns ns             Start of the work, and of the call at least.
CREATE VIEW queued_launches AS
SELECT
    w.run_group, w.run_id, w.rank, w.device, w.stream, w.correlation_id, any_value(l.start_ns) AS start_ns,
    min(greatest(w.start_ns, l.start_ns)) AS end_ns
FROM gpu_work w JOIN launch_calls l USING (run_id, rank, correlation_id)
GROUP BY w.run_group, w.run_id, w.rank, w.device, w.stream, w.correlation_id;
