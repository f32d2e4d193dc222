-- @use gpu_work
-- Time by name, from what was traced; for ranks of which only a summary was printed (nvprof), from that.

-- Kernels: calls and durations by name.
CREATE VIEW kernel_sums AS
SELECT
    run_group, run_id, rank, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns
FROM kernels
GROUP BY run_group, run_id, rank, name
UNION ALL
SELECT run_group, run_id, rank, name, calls, total_ns, min_ns, max_ns
FROM gpu_summary
WHERE NOT starts_with(name, '[') AND (run_id, rank) NOT IN (SELECT DISTINCT (run_id, rank) FROM kernels);

-- Sums of all kernels, and of kernels, memcpys and memsets, which a summary has as [CUDA memcpy HtoD] and the like.
CREATE VIEW gpu_time_sums AS
SELECT
    run_group,
    coalesce(sum(total_ns) FILTER (is_kernel), 0)::BIGINT AS kernel_ns,
    sum(total_ns)::BIGINT AS gpu_ns
FROM (
    SELECT run_group, kind = 'kernel' AS is_kernel, dur_ns AS total_ns FROM gpu_work
    UNION ALL
    SELECT run_group, NOT starts_with(name, '['), total_ns
    FROM gpu_summary
    WHERE (run_id, rank) NOT IN (SELECT DISTINCT (run_id, rank) FROM gpu_work)
)
GROUP BY run_group;

-- CUDA runtime and driver calls by name.
CREATE VIEW cuda_call_sums AS
SELECT
    run_group, run_id, rank, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns
FROM cuda_calls
WHERE api <> 'sync'
GROUP BY run_group, run_id, rank, name
UNION ALL
SELECT run_group, run_id, rank, name, calls, total_ns, min_ns, max_ns
FROM api_summary
WHERE (run_id, rank) NOT IN (SELECT DISTINCT (run_id, rank) FROM cuda_calls);
