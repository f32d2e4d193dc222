-- All GPU work with a short name: a kernel's as `kernel_names` has it, a copy's or fill's as torch.profiler says it.
-- @use work_points
-- @view gpu_named_work  a row is a kernel, memcpy or memset.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column device index          GPU.
-- @column stream id             CUDA stream.
-- @column kind text             kernel, memcpy or memset.
-- @column name text             Short name of a kernel; of a copy or fill, what torch.profiler calls it.
-- @column correlation_id id     Joins a CUDA call and the GPU work that it launched.
-- @column op_id id              The operator that launched it; NULL where none is known.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
-- @column from_tid id           Thread that it comes from, as in work_points.
-- @column from_ns ns            Start of the operator, range or launch call there.
-- @column from_end_ns ns        Its end.
CREATE VIEW gpu_named_work AS
SELECT
    w.run_id, w.rank, w.run_group, w.device, w.stream, w.kind, coalesce(n.short_name, w.name) AS name, w.correlation_id,
    w.op_id, w.start_ns, w.dur_ns, w.from_tid, w.from_ns, w.from_end_ns
FROM work_points w LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name;
