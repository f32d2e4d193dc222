-- What does each nn.Module, range and operator cost, from the top of the model down to the kernels?
--
-- The calls of all steps and ranks, merged: a row is a path of names from the outermost to the innermost. With Python
-- stacks (with_stack) the tree has modules and Python functions; without, ranges and operators. The backward pass runs
-- on a thread of its own and has its own trees, at depth 0; backward_ns also counts its GPU work for the forward
-- operators whose gradients it computes, and for their parents. CUDA calls belong to the operator that makes them; GPU
-- work without an operator (CUDA graphs) belongs to the node in which its launch call lies. (no operator) is GPU work
-- whose launch call lies in no node: self_device_ns adds up to all GPU work.
-- @param tree module|stack = module   Whether the tree has Python functions other than nn.Modules.
-- @param root text = ''           Only the subtrees of this name (ResNet_0, forward), which become depth 0; empty: all.
-- @param depth int[0..1000000] = 1000   Deepest level to show; deeper calls still count.
-- @param kernels yes|no = yes     Whether kernels, copies and fills are the leaves.
-- @column tree text               Name, indented by depth.
-- @column depth index             Level, from 0.
-- @column kind text               module, python, range, op, kernel, memcpy or memset.
-- @column calls count             Calls.
-- @column total_cpu_ns ns         CPU time with children.
-- @column self_cpu_ns ns          CPU time without child nodes.
-- @column total_device_ns ns      Durations of the GPU work launched in it and its children.
-- @column self_device_ns ns       Durations of the GPU work launched in it and in none of its children.
-- @column backward_ns ns          Durations of the GPU work of the backward pass of it and its children, launched
--                                 elsewhere; total_device_ns + backward_ns is the GPU time of forward and backward.
-- @column path text               Names from depth 0, separated by ' > '.
-- @main tree, calls, total_cpu_ns, total_device_ns, self_device_ns, backward_ns
-- @order turns, path
-- @use call_sums, intervals
-- @needs operators, ranges or GPU work
-- @full operators
-- @plot icicle name=tree depth=depth value=total_device_ns kind=kind per=step,gpu
WITH RECURSIVE labels AS (
    SELECT
        path, parent, last_path, run_group, calls, total_ns, self_ns, backward_ns, first_ns,
        CASE WHEN starts_with(name, 'nn.Module: ') THEN 'module' ELSE kind END AS kind,
        replace(name, 'nn.Module: ', '') AS name
    FROM tree_paths('{tree}')
),
-- Kind and name as a number, since numbers are faster to compare.
paths AS MATERIALIZED (
    SELECT *, dense_rank() OVER (ORDER BY kind, name)::INTEGER AS label FROM labels
),
-- Roots of the shown tree: the outermost paths that end in the name.
tops AS (
    SELECT path
    FROM paths
    WHERE CASE WHEN $root = '' THEN parent IS NULL ELSE name = $root END
    QUALIFY outermost(path, last_path)
),
-- Merge equal paths of all ranks and roots level by level; the first one's number stands for all.
walk AS (
    SELECT path AS own_path, NULL::INTEGER AS parent_path, min(path) OVER (PARTITION BY run_group, label) AS path
    FROM paths SEMI JOIN tops USING (path)
    UNION ALL
    SELECT p.path, w.path, min(p.path) OVER (PARTITION BY w.path, p.label)
    FROM walk w JOIN paths p ON p.parent = w.own_path
),
work AS (
    SELECT run_group, path AS own_path, kind, name, calls, total_ns AS ns, first_ns, last_ns FROM tree_work('{tree}')
),
launched AS (
    SELECT own_path AS path, sum(ns) AS device_ns FROM work WHERE own_path IS NOT NULL GROUP BY own_path
),
running AS (
    SELECT p.*, coalesce(device_ns, 0) AS device_ns, sum(coalesce(device_ns, 0)) OVER (ORDER BY p.path) AS so_far_ns
    FROM paths p LEFT JOIN launched USING (path)
),
calls AS (
    SELECT
        r.run_group, w.parent_path, w.path, r.kind, r.name, r.calls, r.total_ns, r.first_ns, r.device_ns,
        r.backward_ns,
        l.so_far_ns - r.so_far_ns + r.device_ns AS subtree_ns
    FROM walk w JOIN running r ON r.path = w.own_path JOIN running l ON l.path = r.last_path
),
leaves AS (
    -- Work without an operator has path -1; with a root, it is not shown.
    SELECT k.* EXCLUDE (own_path), coalesce(w.path, -1) AS parent_path
    FROM work k LEFT JOIN walk w USING (own_path)
    WHERE w.path IS NOT NULL OR k.own_path IS NULL AND $root = ''
),
rows AS (
    SELECT
        run_group, parent_path, path, any_value(kind) AS kind, any_value(name) AS name, sum(calls)::BIGINT AS calls,
        sum(total_ns)::BIGINT AS total_cpu_ns, sum(subtree_ns)::BIGINT AS total_device_ns,
        sum(device_ns)::BIGINT AS self_device_ns, sum(backward_ns)::BIGINT AS backward_ns, min(first_ns) AS first_ns
    FROM calls
    GROUP BY run_group, parent_path, path
    UNION ALL
    SELECT
        run_group, NULL, -1, 'op', '(no operator)', 0, 0, sum(ns)::BIGINT, sum(ns)::BIGINT, 0, max(last_ns)
    FROM leaves
    WHERE parent_path = -1
    GROUP BY run_group
    UNION ALL
    SELECT
        run_group, parent_path, NULL, kind, name, sum(calls)::BIGINT, 0, sum(ns)::BIGINT, sum(ns)::BIGINT, 0,
        min(first_ns)
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
-- `turns` are the first starts along the path: sorted by it, rows are in the order of the calls.
named AS (
    SELECT c.*, 0 AS depth, [first_ns] AS turns, name AS names FROM complete c WHERE parent_path IS NULL
    UNION ALL
    SELECT c.*, n.depth + 1, list_append(n.turns, c.first_ns), n.names || ' > ' || c.name
    FROM named n JOIN complete c ON c.parent_path = n.path AND c.run_group IS NOT DISTINCT FROM n.run_group
)
SELECT
    run_group, repeat('  ', depth) || name AS tree, depth, kind, calls, total_cpu_ns, self_cpu_ns, total_device_ns,
    self_device_ns, backward_ns, names AS path, turns
FROM named
WHERE depth <= $depth
