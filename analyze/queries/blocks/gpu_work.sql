-- All work on GPUs: kernels, memcpys and memsets in one; `name` is the kernel's. op_id is what the file says:
-- `linked_to_ops` has the operator.
-- @keep gpu_work
-- @view gpu_work  a row is a kernel, memcpy or memset.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column device index          GPU.
-- @column stream id             CUDA stream.
-- @column kind text             kernel, memcpy or memset.
-- @column name text             The kernel's; NULL of others.
-- @column correlation_id id     Joins a CUDA call and the GPU work that it launched.
-- @column op_id id              As the file says it.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE VIEW gpu_work AS
SELECT run_id, rank, run_group, device, stream, 'kernel' AS kind, name, correlation_id, op_id, start_ns, dur_ns
FROM kernels
UNION ALL
SELECT run_id, rank, run_group, device, stream, 'memcpy', NULL, correlation_id, op_id, start_ns, dur_ns FROM memcpys
UNION ALL
SELECT run_id, rank, run_group, device, stream, 'memset', NULL, correlation_id, op_id, start_ns, dur_ns FROM memsets;
