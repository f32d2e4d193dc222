-- What torch.profiler saw on the CPU, in one: operators (op), ranges (range), ranges of asynchronous collectives, which
-- end on another thread than they began on (async), CUDA calls (call), the profiler's own work (overhead) and Python
-- functions (python). op_id is the file's: `linked_to_ops` has those of calls.
-- @view cpu_events  a row is an event.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column kind text             op, range, async, call, overhead or python.
-- @column name text             Name; that of a profiler step is ProfilerStep*.
-- @column pid id                Process.
-- @column tid id                Thread.
-- @column correlation_id id     Of calls.
-- @column op_id id              As the file says it.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE VIEW cpu_events AS
SELECT run_id, rank, run_group, 'op' AS kind, name, pid, tid, NULL::BIGINT AS correlation_id, op_id, start_ns, dur_ns
FROM cpu_ops
UNION ALL
SELECT
    run_id, rank, run_group,
    CASE
        WHEN origin = 'python_function' THEN 'python'
        WHEN origin = 'overhead' THEN 'overhead'
        WHEN regexp_matches(name, '^(nccl|gloo|mpi|ucc|xccl):') THEN 'async'
        ELSE 'range'
    END,
    regexp_replace(name, '^ProfilerStep#\d+$', 'ProfilerStep*'), pid, tid, NULL, op_id, start_ns, dur_ns
FROM ranges
WHERE origin IN ('record_function', 'profiler_step', 'overhead', 'python_function')
UNION ALL
SELECT run_id, rank, run_group, 'call', name, pid, tid, correlation_id, op_id, start_ns, dur_ns
FROM cuda_calls
WHERE api <> 'sync';
