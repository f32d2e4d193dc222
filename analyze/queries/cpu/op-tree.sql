-- What does each operator cost, by its position in the call tree?
--
-- A row is a path of operators and ranges from the root of a thread: the same operator under two parents has two rows.
-- CUDA calls and profiler overhead belong to the operator or range in which they begin. Self CPU time excludes child
-- operators and ranges, so it adds up to the time of the roots. Self GPU time is that of the kernels, memcpys and
-- memsets that the operator itself launched: by External id, or without one (CUDA graphs) by the position of the launch
-- call. GPU work launched outside operators and ranges is the row `(no operator)`: GPU time adds up to that of all GPU
-- work. `compare --level op` aligns two recordings by this path.
-- @column path text               Names from the root down, separated by ` > `.
-- @column name text               Last name of the path.
-- @column kind text               op, range or gpu (no operator).
-- @column calls count             Calls.
-- @column self_cpu_ns ns          CPU time without child operators and ranges.
-- @column total_cpu_ns ns         CPU time with children.
-- @column gpu_ops count           Kernels, memcpys and memsets that it launched itself.
-- @column self_gpu_ns ns          Sum of their durations.
-- @main path, calls, self_cpu_ns, total_cpu_ns, self_gpu_ns
-- @order self_gpu_ns + self_cpu_ns DESC, path, kind
-- @use call_sums
-- @needs operators, ranges or GPU work
-- @full operators
-- @plot icicle path=path value=self_gpu_ns per=step,gpu
WITH RECURSIVE
paths AS MATERIALIZED (
    SELECT * FROM tree_paths('op')
),
walk AS (
    SELECT path AS own_path, name AS path FROM paths WHERE parent IS NULL
    UNION ALL
    SELECT p.path, concat_ws(' > ', w.path, p.name) FROM paths p JOIN walk w ON p.parent = w.own_path
),
launched AS (
    SELECT run_group, path AS own_path, sum(calls) AS gpu_ops, sum(total_ns) AS gpu_ns
    FROM tree_work('op')
    GROUP BY run_group, path
)
SELECT
    p.run_group, w.path, any_value(name) AS name, kind, sum(calls)::BIGINT AS calls, sum(self_ns)::BIGINT
        AS self_cpu_ns,
    sum(total_ns)::BIGINT AS total_cpu_ns, coalesce(sum(gpu_ops), 0)::BIGINT AS gpu_ops,
    coalesce(sum(l.gpu_ns), 0)::BIGINT AS self_gpu_ns
FROM paths p JOIN walk w ON w.own_path = p.path LEFT JOIN launched l ON l.own_path = p.path
GROUP BY p.run_group, w.path, kind
UNION ALL
SELECT run_group, '(no operator)', '(no operator)', 'gpu', 0, 0, 0, gpu_ops::BIGINT, gpu_ns::BIGINT
FROM launched
WHERE own_path IS NULL
