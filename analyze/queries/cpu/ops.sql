-- What does each operator cost on the CPU and on the GPU?
--
-- The table of torch.profiler's key_averages() of the same trace: self time is without the operators and CUDA calls below,
-- device time is that of the kernels, memcpys and memsets that the operator launched (self) or that it and everything
-- below it launched (total). An operator whose only child has its name is one call, as there. GPU work has rows of its own.
-- @use torch_names
-- @param python no|yes = no       Whether Python functions (with_stack) take self time from what is below them; torch's own
--                                 table counts so where its version lists them as events.
-- @column name text               Operator, range, CUDA call, kernel or copy.
-- @column place text              cpu or gpu.
-- @column kind text               op, range, async (a collective's range), call, overhead or gpu.
-- @column calls count             Calls.
-- @column self_cpu_ns ns          CPU time without children.
-- @column total_cpu_ns ns         CPU time with children.
-- @column self_device_ns ns       GPU time of what it launched itself.
-- @column total_device_ns ns      GPU time of what it and its children launched.
-- @order self_device_ns + self_cpu_ns DESC, name, kind
WITH gpu_events AS (
    SELECT run_id, rank, run_group, name, op_id, dur_ns, false AS annotation FROM kernels
    UNION ALL
    SELECT run_id, rank, run_group, memcpy_name(kind, src_memory, dst_memory), op_id, dur_ns, false FROM memcpys
    UNION ALL
    SELECT run_id, rank, run_group, memset_name(dst_memory), op_id, dur_ns, false FROM memsets
    UNION ALL
    SELECT run_id, rank, run_group, regexp_replace(name, '^ProfilerStep#\d+$', 'ProfilerStep*'), op_id, greatest(dur_ns - 2, 0), true
    FROM ranges WHERE origin = 'gpu_annotation'
),
launched AS (
    SELECT run_id, rank, op_id, sum(dur_ns)::BIGINT AS dur_ns FROM gpu_events WHERE op_id > 0 AND NOT annotation GROUP BY ALL
),
nodes AS (
    SELECT
        t.run_id, t.rank, t.run_group, t.node, t.parent, t.last_node, t.kind, t.dur_ns, t.name,
        CASE WHEN t.kind IN ('op', 'range') THEN coalesce(l.dur_ns, 0) ELSE 0 END AS device_ns
    FROM call_tree_{python} t LEFT JOIN launched l USING (run_id, rank, op_id)
),
children AS (
    SELECT parent, count(*) AS n, sum(dur_ns) AS dur_ns, any_value(name) AS name
    FROM nodes WHERE parent IS NOT NULL GROUP BY parent
),
owned AS (
    SELECT
        n.*, coalesce(c.dur_ns, 0) AS children_ns,
        -- The only child of the same name is folded into its parent and brings its own kernels instead.
        CASE WHEN c.n = 1 AND c.name = n.name THEN 0 ELSE device_ns END AS own_device_ns
    FROM nodes n LEFT JOIN children c ON c.parent = n.node
),
running AS (
    SELECT *, sum(own_device_ns) OVER (ORDER BY node) AS device_so_far_ns FROM owned
),
complete AS (
    SELECT
        r.run_group, r.name, r.kind, r.dur_ns, CASE WHEN r.kind = 'async' THEN 0 ELSE r.dur_ns - r.children_ns END AS self_ns, r.own_device_ns,
        l.device_so_far_ns - r.device_so_far_ns + r.own_device_ns AS subtree_device_ns,
        p.n = 1 AND p.name = pn.name AS folded
    FROM running r
    JOIN running l ON l.node = r.last_node
    LEFT JOIN children p ON p.parent = r.parent
    LEFT JOIN nodes pn ON pn.node = r.parent
)
SELECT
    run_group, name, 'cpu' AS place, kind,
    count(*) FILTER (folded IS NOT TRUE) AS calls,
    sum(self_ns)::BIGINT AS self_cpu_ns,
    coalesce(sum(dur_ns) FILTER (folded IS NOT TRUE), 0)::BIGINT AS total_cpu_ns,
    sum(own_device_ns)::BIGINT AS self_device_ns,
    coalesce(sum(subtree_device_ns) FILTER (folded IS NOT TRUE), 0)::BIGINT AS total_device_ns
FROM complete
WHERE kind <> 'python'
GROUP BY run_group, name, kind
UNION ALL
SELECT
    run_group, name, 'gpu', 'gpu', count(*), 0, 0, sum(dur_ns)::BIGINT, sum(dur_ns)::BIGINT
FROM gpu_events
GROUP BY run_group, name
