-- Which ranks compile what others do not, or wait for one that compiles?
--
-- From TORCH_TRACE logs of several ranks. All ranks should compile the same graphs at the same time: in a collective,
-- each waits for the one that still compiles. Compilations are compared by frame, recompilation and pass.
-- @column run_id id               The run.
-- @column compile_id text         Frame / recompilation.
-- @column pass text               forward, backward or runtime.
-- @column function text           The frame.
-- @column where text              The program's line that called it.
-- @column differs text            only on some ranks, other frames, other graphs, other outcomes, or nothing.
-- @column ranks text              Ranks that compiled it.
-- @column missing text            Ranks with a log that did not.
-- @column guard text              The guard that failed, on the first of its ranks.
-- @column min_ns ns               Shortest duration of the ranks.
-- @column max_ns ns               Longest.
-- @column slowest_rank index      The rank that took longest.
-- @column waited_ns ns            How long others waited meanwhile; the longest wait for one rank.
-- @main compile_id, pass, where, differs, ranks, guard, max_ns, slowest_rank, waited_ns
-- @order run_id, waited_ns DESC NULLS LAST, max_ns DESC NULLS LAST, compile_id, pass
-- @use compile_log
-- @needs a log of torch.compile (of several ranks)
-- @rows if several ranks have one
-- @pass all
WITH logged AS (
    SELECT run_id, list(DISTINCT rank ORDER BY rank) AS ranks
    FROM compilations GROUP BY run_id HAVING count(DISTINCT rank) > 1
),
joined AS (
    SELECT a.*, waited_ns, guard
    FROM compile_attempts a
    LEFT JOIN compile_waits w USING (run_id, rank, compilation)
    LEFT JOIN failed_guards g
        ON g.run_id = a.run_id AND g.rank = a.rank AND g.compile_id = a.compile_id AND g.turn = a.turn
    WHERE outcome <> 'restarted'
),
compared AS (
    SELECT
        run_id, compile_id, pass, turn, min(function) AS function, min("where") AS "where",
        list(DISTINCT rank ORDER BY rank) AS there, arg_min(guard, rank) AS guard, min(dur_ns) AS min_ns,
        max(dur_ns) AS max_ns, arg_max(rank, (dur_ns, -rank)) AS slowest_rank, max(waited_ns) AS waited_ns,
        count(DISTINCT (file, line, function)) > 1 AS other_frames, count(DISTINCT graph_ops) > 1 AS other_graphs,
        count(DISTINCT outcome) > 1 AS other_outcomes
    FROM joined
    GROUP BY run_id, compile_id, pass, turn
),
-- With --by rank, the ranks of each group are compared with all.
grouped AS (
    SELECT DISTINCT run_group, run_id, compile_id, pass, turn FROM joined
)
SELECT
    g.run_group, g.run_id, g.compile_id, g.pass, function, "where",
    CASE
        WHEN len(there) < len(l.ranks) THEN 'only on some ranks' WHEN other_frames THEN 'other frames'
        WHEN other_graphs THEN 'other graphs' WHEN other_outcomes THEN 'other outcomes'
    END AS differs,
    array_to_string(there, ', ') AS ranks,
    nullif(array_to_string(list_filter(l.ranks, lambda r: NOT list_contains(there, r)), ', '), '') AS missing, guard,
    min_ns, max_ns, slowest_rank, waited_ns
FROM grouped g
JOIN compared c
    ON c.run_id = g.run_id AND c.compile_id IS NOT DISTINCT FROM g.compile_id AND c.pass = g.pass AND c.turn = g.turn
JOIN logged l ON l.run_id = g.run_id
