-- All work on GPUs: kernels, memcpys and memsets in one; `name` is the kernel's. op_id is what the file says:
-- `linked_to_ops` has the operator.
CREATE VIEW gpu_work AS
SELECT run_id, rank, run_group, device, stream, 'kernel' AS kind, name, correlation_id, op_id, start_ns, dur_ns
FROM kernels
UNION ALL
SELECT run_id, rank, run_group, device, stream, 'memcpy', NULL, correlation_id, op_id, start_ns, dur_ns FROM memcpys
UNION ALL
SELECT run_id, rank, run_group, device, stream, 'memset', NULL, correlation_id, op_id, start_ns, dur_ns FROM memsets;
