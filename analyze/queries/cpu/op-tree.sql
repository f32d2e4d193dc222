-- What does each operator cost, by where in the call tree it is called?
--
-- A row is a path of operators and ranges from the root of a thread, so the same operator under two parents is two
-- rows. CUDA calls count for the operator that makes them. Self CPU time is without the operators and ranges below, so
-- it adds up to the time of the roots; self GPU time is that of the kernels, memcpys and memsets that the operator
-- itself launched, by External id. GPU work that no operator launched is the row `(no operator)`: GPU time adds up to
-- that of all GPU work. `compare --level op` aligns two recordings by this path.
-- @column path text               Names from the root down, with ` > ` between.
-- @column name text               The last of them.
-- @column kind text               op, range or gpu (no operator).
-- @column calls count             Calls.
-- @column self_cpu_ns ns          CPU time without the operators and ranges below it.
-- @column total_cpu_ns ns         CPU time with them.
-- @column gpu_ops count           Kernels, memcpys and memsets that it launched itself.
-- @column self_gpu_ns ns          Sum of their durations.
-- @order self_gpu_ns + self_cpu_ns DESC, path, kind
-- @use gpu_work
-- @needs operators: a recording of torch.profiler
WITH RECURSIVE
walked AS (
    -- `owner`: the innermost operator or range, itself included; what hangs below a CUDA call belongs to the caller.
    SELECT node, kind, run_id, rank, run_group, op_id, dur_ns, NULL::BIGINT AS above,
        CASE WHEN kind IN ('op', 'range') THEN node END AS owner,
        CASE WHEN kind IN ('op', 'range') THEN name END AS path, name
    FROM call_tree_no
    WHERE parent IS NULL AND kind <> 'async'
    UNION ALL
    SELECT t.node, t.kind, t.run_id, t.rank, t.run_group, t.op_id, t.dur_ns, w.owner,
        CASE WHEN t.kind IN ('op', 'range') THEN t.node ELSE w.owner END,
        CASE WHEN t.kind IN ('op', 'range') THEN concat_ws(' > ', w.path, t.name) ELSE w.path END, t.name
    FROM call_tree_no t JOIN walked w ON t.parent = w.node
),
owners AS MATERIALIZED (
    SELECT * FROM walked WHERE kind IN ('op', 'range')
),
below AS (
    SELECT above AS node, sum(dur_ns) AS below_ns FROM owners WHERE above IS NOT NULL GROUP BY above
),
ids AS (
    SELECT run_id, rank, op_id, max(node) AS node FROM owners WHERE op_id > 0 GROUP BY run_id, rank, op_id
),
launched AS (
    SELECT g.run_group, i.node, count(*) AS gpu_ops, sum(g.dur_ns)::BIGINT AS gpu_ns
    FROM gpu_work g LEFT JOIN ids i USING (run_id, rank, op_id)
    GROUP BY g.run_group, i.node
)
SELECT
    o.run_group, path, any_value(o.name) AS name, kind, count(*) AS calls,
    sum(dur_ns - coalesce(below_ns, 0))::BIGINT AS self_cpu_ns, sum(dur_ns)::BIGINT AS total_cpu_ns,
    coalesce(sum(gpu_ops), 0)::BIGINT AS gpu_ops, coalesce(sum(gpu_ns), 0)::BIGINT AS self_gpu_ns
FROM owners o LEFT JOIN below b USING (node) LEFT JOIN launched l USING (node)
GROUP BY o.run_group, path, kind
UNION ALL
SELECT run_group, '(no operator)', '(no operator)', 'gpu', 0, 0, 0, gpu_ops, gpu_ns FROM launched WHERE node IS NULL
