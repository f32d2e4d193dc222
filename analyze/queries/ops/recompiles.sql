-- Which guards fail, so that torch.compile compiles again?
--
-- From TORCH_TRACE logs. Compiled code has guards: conditions on its inputs. If all compiled versions of a frame have a
-- guard that fails, the frame is compiled again. `guard` is from the latest version. For a size that changes often,
-- use dynamic shapes (mark_dynamic, dynamic=True) or constant batches. Times are those of the forward and of its
-- backward.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column compile_id text         What was compiled: frame / recompilation.
-- @column failed_compile_id text  The latest compiled version of the frame.
-- @column guard text              Its guard that failed.
-- @column guards_failed count     Compiled versions of the frame, each with a guard that failed.
-- @column function text           The frame.
-- @column where text              The program's line that called it.
-- @column step index              Recorded step that it began in; NULL if outside.
-- @column start_ns ns             Start, since the run's first event; negative before the recording.
-- @column dur_ns ns               Time to compile its forward.
-- @column backward_ns ns          Time to compile its backward; 0 if there is none.
-- @column waited_ns ns            How long other ranks waited for this one meanwhile, mean of them; NULL if none did.
-- @main rank, compile_id, guard, where, step, dur_ns, waited_ns
-- @order run_id, rank, start_ns, compile_id
-- @use compile_log, run_zeros
-- @needs a log of torch.compile
-- @rows if a guard fails
-- @pass all
SELECT
    a.run_group, g.run_id, g.rank, g.compile_id, failed_compile_id, guard, guards_failed,
    any_value(function) AS function, any_value("where") AS "where",
    min(step) AS step, min(start_ns) - any_value(zero_ns) AS start_ns,
    sum(dur_ns) FILTER (pass = 'forward')::BIGINT AS dur_ns,
    coalesce(sum(dur_ns) FILTER (pass = 'backward'), 0)::BIGINT AS backward_ns, sum(waited_ns)::BIGINT AS waited_ns
FROM failed_guards g
JOIN compile_attempts a
    ON a.run_id = g.run_id AND a.rank = g.rank AND a.compile_id = g.compile_id AND a.turn = g.turn
JOIN run_zeros z ON z.run_id = g.run_id
LEFT JOIN compile_steps s ON s.run_id = a.run_id AND s.rank = a.rank AND s.compilation = a.compilation
LEFT JOIN compile_waits w ON w.run_id = a.run_id AND w.rank = a.rank AND w.compilation = a.compilation
GROUP BY a.run_group, g.run_id, g.rank, g.compile_id, g.turn, failed_compile_id, guard, guards_failed
