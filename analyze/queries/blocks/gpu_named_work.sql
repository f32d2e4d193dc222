-- All GPU work with the operator that launched it (op_id) and a short name: a kernel's as `kernel_names` has it, a
-- copy's or fill's as torch.profiler says it.
-- @use op_links, torch_names
-- @keep gpu_named_work
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
CREATE VIEW gpu_named_work AS
SELECT
    k.run_id, k.rank, k.run_group, k.device, k.stream, 'kernel' AS kind, coalesce(n.short_name, k.name) AS name,
    k.correlation_id, k.op_id, k.start_ns, k.dur_ns
FROM linked_to_ops('kernels') k LEFT JOIN kernel_names n USING (run_id, name)
UNION ALL
SELECT
    run_id, rank, run_group, device, stream, 'memcpy', memcpy_name(kind, src_memory, dst_memory),
    correlation_id, op_id, start_ns, dur_ns
FROM linked_to_ops('memcpys')
UNION ALL
SELECT
    run_id, rank, run_group, device, stream, 'memset', memset_name(dst_memory), correlation_id, op_id, start_ns, dur_ns
FROM linked_to_ops('memsets');
