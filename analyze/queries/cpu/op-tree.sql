-- What does each operator cost, by its place in the call tree?
--
-- A row is a path of operators and ranges from the root of a thread, so the same operator under two parents is two
-- rows. CUDA calls count for the operator that makes them, and the profiler's own overhead for what it interrupts. Self
-- CPU time is without the operators and ranges below, so it adds up to the time of the roots; self GPU time is that of
-- the kernels, memcpys and memsets that the operator itself launched, by External id, or where they have none (a CUDA
-- graph's) by the place of the launch call. GPU work that was launched in no operator or range is the row
-- `(no operator)`: GPU time adds up to that of all GPU work. `compare --level op` aligns two recordings by this path.
-- @column path text               Names from the root down, with ` > ` between.
-- @column name text               The last of them.
-- @column kind text               op, range or gpu (no operator).
-- @column calls count             Calls.
-- @column self_cpu_ns ns          CPU time without the operators and ranges below it.
-- @column total_cpu_ns ns         CPU time with them.
-- @column gpu_ops count           Kernels, memcpys and memsets that it launched itself.
-- @column self_gpu_ns ns          Sum of their durations.
-- @main path, calls, self_cpu_ns, total_cpu_ns, self_gpu_ns
-- @order self_gpu_ns + self_cpu_ns DESC, path, kind
-- @use call_sums
-- @needs operators, ranges or GPU work
-- @plot icicle path=path value=self_gpu_ns
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
