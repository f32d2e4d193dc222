-- The call paths of all ranks (call_paths, call_work) under common numbers, and sums of times.

-- @macro known_ns(ns)  a sum of times; an error if 64 bits cannot hold it.
CREATE MACRO known_ns(ns) AS
    CASE WHEN ns IS NULL THEN error('the events of a rank took more, together, than 2^62 ns') ELSE ns END;

-- @macro paths_before(chosen)  the number of paths of a tree in the ranks before each: paths then have numbers of their
--   own in all ranks.
-- @columns run_id, rank
-- @column before count            Paths of the ranks before.
CREATE MACRO paths_before(chosen) AS TABLE
SELECT run_id, rank, sum(count(*)) OVER (ORDER BY run_id, rank) - count(*) AS before
FROM call_paths
WHERE tree = chosen
GROUP BY run_id, rank;

-- @macro tree_paths(chosen)  the paths of a tree (op, module or stack), numbered over all ranks in pre-order.
-- @columns run_id, rank, run_group
-- @column kind text               op, range or python: of the last name.
-- @column name text               Last name.
-- @column path index              Number over all ranks, in pre-order.
-- @column parent index            Path without its last name; NULL for a root.
-- @column last_path index         Last path below it; its own if there is none.
-- @column depth index             Its level, from 0.
-- @column calls count             Calls.
-- @column total_ns ns             Sum of their durations.
-- @column self_ns ns              Sum of their self times.
-- @column backward_ns ns          GPU work of their backward pass and that of paths below, launched outside of them.
-- @column first_ns ns             First start.
CREATE MACRO tree_paths(chosen) AS TABLE
SELECT
    run_id, rank, run_group, kind, name, (before + path)::BIGINT AS path, (before + parent)::BIGINT AS parent,
    (before + last_path)::BIGINT AS last_path, depth, calls, known_ns(total_ns) AS total_ns,
    known_ns(self_ns) AS self_ns, known_ns(backward_ns) AS backward_ns, first_ns
FROM call_paths JOIN paths_before(chosen) USING (run_id, rank)
WHERE tree = chosen;

-- @macro tree_work(chosen)  the GPU work that the calls of each path of a tree launched themselves.
-- @columns run_id, rank, run_group
-- @column path index              Path, as in `tree_paths`; NULL if the work has none.
-- @column kind text               kernel, memcpy or memset.
-- @column name text               Short name of a kernel; of a copy or fill, what torch.profiler calls it.
-- @column calls count             Kernels, copies or fills.
-- @column total_ns ns             Sum of their durations.
-- @column first_ns ns             First start.
-- @column last_ns ns              Last start.
CREATE MACRO tree_work(chosen) AS TABLE
SELECT
    w.run_id, w.rank, w.run_group, (before + path)::BIGINT AS path, kind, coalesce(short_name, w.name) AS name,
    sum(calls)::BIGINT AS calls, sum(known_ns(total_ns))::BIGINT AS total_ns, min(first_ns) AS first_ns,
    max(last_ns) AS last_ns
FROM (SELECT * FROM call_work WHERE tree = chosen) w
LEFT JOIN paths_before(chosen) r ON r.run_id = w.run_id AND r.rank = w.rank
LEFT JOIN kernel_names n ON w.kind = 'kernel' AND n.run_id = w.run_id AND n.name = w.name
GROUP BY ALL;
