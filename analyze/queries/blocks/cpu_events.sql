-- What torch.profiler saw on the CPU, in one: operators (op), ranges (range), ranges of asynchronous collectives, which
-- end on another thread than they began on (async), CUDA calls (call), the profiler's own work (overhead) and Python
-- functions (python). op_id is the file's: `linked_to_ops` has those of calls.
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
