-- @use op_links, torch_names
-- All GPU work with the operator that launched it (op_id) and a short name: a kernel's as `kernel_names` has it, a
-- copy's or fill's as torch.profiler says it.
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
