-- What does each nn.Module, range and operator cost, from the top of the model down to the kernels?
--
-- The calls of all steps and ranks laid over each other: a row is a path of names from the outermost to the innermost.
-- Modules and Python functions are there if the trace has Python stacks (with_stack); without, the tree is one of
-- ranges and operators. The backward pass runs on a thread of its own and so has trees of its own, at depth 0. CUDA
-- calls count for the operator that makes them; work that the trace links to no operator (a CUDA graph's) for what its
-- launch call lies in. (no operator) is GPU work whose launch call lies in nothing, so that self_device_ns adds up to
-- all GPU work.
-- @param tree module|stack = module   Whether Python functions other than nn.Modules are part of it.
-- @param root text = ''           Only what is below this name (ResNet_0, forward), which becomes depth 0; all if
--                                 empty.
-- @param depth int[0..1000000] = 1000 Deepest level shown; what is below counts all the same.
-- @param kernels yes|no = yes     Whether kernels, copies and fills are the leaves.
-- @column tree text               Name, indented by depth.
-- @column depth index             Its level, from 0.
-- @column kind text               module, python, range, op, kernel, memcpy or memset.
-- @column calls count             Calls.
-- @column total_cpu_ns ns         CPU time with what is below.
-- @column self_cpu_ns ns          CPU time without the calls below that are part of the tree.
-- @column total_device_ns ns      Durations of the GPU work launched in it or below.
-- @column self_device_ns ns       Of that launched in no call below that is part of the tree.
-- @column path text               Names from depth 0, with ' > ' between.
-- @main tree, calls, total_cpu_ns, total_device_ns, self_device_ns
-- @order turns, path
-- @use call_tree_{tree}, gpu_named_work, outermost_nodes, work_nodes
-- @needs operators, ranges or GPU work
-- @plot icicle name=tree depth=depth value=total_device_ns kind=kind
WITH RECURSIVE names AS (
    SELECT
        kind AS own_kind, name AS own_name,
        CASE WHEN starts_with(name, 'nn.Module: ') THEN 'module' ELSE kind END AS kind,
        replace(name, 'nn.Module: ', '') AS name
    FROM (SELECT DISTINCT kind, name FROM call_tree_{tree} WHERE kind <> 'async')
),
labels AS MATERIALIZED (
    SELECT *, dense_rank() OVER (ORDER BY kind, name)::INTEGER AS label FROM names
),
-- What a node is called by a number: texts would be compared level by level.
nodes AS MATERIALIZED (
    SELECT t.run_group, t.node, t.parent, t.last_node, t.start_ns, t.dur_ns, l.label, l.kind, l.name
    FROM call_tree_{tree} t JOIN labels l ON l.own_kind = t.kind AND l.own_name IS NOT DISTINCT FROM t.name
),
-- Where the paths begin: the outermost nodes of the name.
tops AS (
    SELECT node
    FROM nodes
    WHERE CASE WHEN $root = '' THEN parent IS NULL ELSE name = $root END
    QUALIFY outermost(node, last_node)
),
-- A path is known by the first node on it, level by level, so that no string grows along the way.
walk AS (
    SELECT node, NULL::INTEGER AS parent_path, min(node) OVER (PARTITION BY run_group, label) AS path
    FROM nodes SEMI JOIN tops USING (node)
    UNION ALL
    SELECT n.node, w.path, min(n.node) OVER (PARTITION BY w.path, n.label)
    FROM walk w JOIN nodes n ON n.parent = w.node
),
work AS (
    SELECT * FROM work_nodes('gpu_named_work', 'call_tree_{tree}')
),
launched AS (
    SELECT node, sum(dur_ns)::BIGINT AS device_ns FROM work WHERE node IS NOT NULL GROUP BY node
),
running AS (
    SELECT n.*, coalesce(device_ns, 0) AS device_ns, sum(coalesce(device_ns, 0)) OVER (ORDER BY n.node) AS so_far_ns
    FROM nodes n LEFT JOIN launched USING (node)
),
calls AS (
    SELECT
        r.run_group, w.parent_path, w.path, r.kind, r.name, r.start_ns, r.dur_ns, r.device_ns,
        l.so_far_ns - r.so_far_ns + r.device_ns AS subtree_ns
    FROM walk w JOIN running r USING (node) JOIN running l ON l.node = r.last_node
),
leaves AS (
    -- -1 is the path of what has no operator. With a root, what is outside is not shown.
    SELECT k.run_group, coalesce(w.path, -1) AS parent_path, k.kind, k.name, k.start_ns, k.dur_ns
    FROM work k LEFT JOIN walk w USING (node)
    WHERE w.path IS NOT NULL OR k.node IS NULL AND $root = ''
),
rows AS (
    SELECT
        run_group, parent_path, path, any_value(kind) AS kind, any_value(name) AS name, count(*) AS calls,
        sum(dur_ns)::BIGINT AS total_cpu_ns, sum(subtree_ns)::BIGINT AS total_device_ns,
        sum(device_ns)::BIGINT AS self_device_ns, min(start_ns) AS first_ns
    FROM calls
    GROUP BY run_group, parent_path, path
    UNION ALL
    SELECT
        run_group, NULL, -1, 'op', '(no operator)', 0, 0, sum(dur_ns)::BIGINT, sum(dur_ns)::BIGINT, max(start_ns)
    FROM leaves
    WHERE parent_path = -1
    GROUP BY run_group
    UNION ALL
    SELECT
        run_group, parent_path, NULL, kind, name, count(*), 0, sum(dur_ns)::BIGINT, sum(dur_ns)::BIGINT, min(start_ns)
    FROM leaves
    WHERE '{kernels}' = 'yes'
    GROUP BY run_group, parent_path, kind, name
),
below AS (
    SELECT run_group, parent_path AS path, sum(total_cpu_ns)::BIGINT AS cpu_ns FROM rows GROUP BY run_group, parent_path
),
complete AS (
    SELECT r.*, r.total_cpu_ns - coalesce(b.cpu_ns, 0) AS self_cpu_ns
    FROM rows r LEFT JOIN below b ON b.path = r.path AND b.run_group IS NOT DISTINCT FROM r.run_group
),
-- The strings, made once for each path; `turns` are the first starts along it, which puts the rows into the order of
-- the calls.
named AS (
    SELECT c.*, 0 AS depth, [first_ns] AS turns, name AS names FROM complete c WHERE parent_path IS NULL
    UNION ALL
    SELECT c.*, n.depth + 1, list_append(n.turns, c.first_ns), n.names || ' > ' || c.name
    FROM named n JOIN complete c ON c.parent_path = n.path AND c.run_group IS NOT DISTINCT FROM n.run_group
)
SELECT
    run_group, repeat('  ', depth) || name AS tree, depth, kind, calls, total_cpu_ns, self_cpu_ns, total_device_ns,
    self_device_ns, names AS path, turns
FROM named
WHERE depth <= $depth
