-- Where do torch.compile's graphs break, and why?
--
-- From TORCH_TRACE logs. Dynamo ends a graph at code that it cannot trace, runs that code in Python, and begins another
-- graph after it: less is fused, and each graph is one more call on the CPU. A frame that is compiled again breaks
-- again.
-- @column run_id id               The run.
-- @column where text              The program's innermost line.
-- @column reason text             What Dynamo cannot trace.
-- @column explanation text        torch's explanation.
-- @column hint text               torch's first hint.
-- @column path text               The program's lines, outermost first.
-- @column breaks count            Graph breaks there, on all ranks.
-- @column ranks count             Ranks with them.
-- @column compile_ids text        Compilations with them: frame / recompilation.
-- @main where, reason, hint, breaks, ranks
-- @order run_id, breaks DESC, path, reason
-- @use compile_log, program_frames
-- @needs a log of torch.compile
-- @rows if a graph breaks
-- @pass all
WITH places AS (
    SELECT
        *, coalesce(own_frames(stack)[-1], frame_text(file, line, function)) AS place,
        coalesce(array_to_string(own_frames(stack), ' > '), place) AS lines
    FROM graph_breaks
)
SELECT
    run_group, run_id, place AS "where", reason, min(explanation) AS explanation, min(hint) AS hint,
    min(lines) AS path, count(*) AS breaks, count(DISTINCT rank) AS ranks,
    string_agg(DISTINCT compile_id, ', ' ORDER BY compile_id) AS compile_ids
FROM places
GROUP BY run_group, run_id, place, reason
