-- What torch.compile did, from TORCH_TRACE logs: attempts of one compilation together, the program's line, the step it
-- was in, and who waited for it.
-- @use collectives, program_frames, steps

-- @macro own_frames(stack)  the program's frames of a stack (JSON), outermost first, as FILE:LINE FUNCTION;
--   all of them if none is the program's.
CREATE MACRO own_frames(stack) AS list_transform(
    CASE
        WHEN len(list_filter(from_json(stack, '[["VARCHAR"]]'), lambda f: is_own_frame(f[1]))) > 0
            THEN list_filter(from_json(stack, '[["VARCHAR"]]'), lambda f: is_own_frame(f[1]))
        ELSE from_json(stack, '[["VARCHAR"]]')
    END,
    lambda f: frame_text(f[1], f[2]::INTEGER, f[3])
);

-- @view compile_attempts  a row is one of `compilations`.
-- @column * of compilations
-- @column turn index              How often its id was there before: torch.compiler.reset() starts the ids again.
-- @column where text              The program's line that called the frame; of its own frame, the frame itself.
-- @column end_ns ns               End; NULL if its duration is not known.
CREATE VIEW compile_attempts AS
SELECT
    *, sum((attempt = 0 AND pass = 'forward')::INTEGER) OVER (
        PARTITION BY run_id, rank, compile_id ORDER BY compilation
    )::BIGINT - 1 AS turn,
    coalesce(own_frames(stack)[-1], frame_text(file, line, function)) AS "where", start_ns + dur_ns AS end_ns
FROM compilations;

-- @view compile_waits  a row is a compilation for which ranks waited: their kernels of a collective had started, and
--   that of the rank that compiled had not.
-- @columns run_id, rank
-- @column compilation index       The compilation.
-- @column waiting_ranks count     Ranks that waited.
-- @column waited_ns ns            How long, mean of these ranks.
CREATE VIEW compile_waits AS
WITH _kernels AS (
    FROM matched_collectives('collective_kernels')
),
_late AS (
    SELECT call, run_id, rank, shift_ns FROM _kernels WHERE last
),
_waits AS (
    SELECT
        k.run_id, k.rank AS waiting, l.rank, k.start_ns + k.excluded_ns + l.shift_ns AS start_ns,
        k.start_ns + k.excluded_ns + k.wait_ns + l.shift_ns AS end_ns
    FROM _kernels k JOIN _late l USING (call)
    WHERE k.wait_ns > 0 AND k.rank <> l.rank
)
SELECT
    c.run_id, c.rank, c.compilation, count(DISTINCT w.waiting) AS waiting_ranks,
    (sum(least(w.end_ns, c.end_ns) - greatest(w.start_ns, c.start_ns)) / count(DISTINCT w.waiting))::BIGINT
        AS waited_ns
FROM compile_attempts c
JOIN _waits w ON w.run_id = c.run_id AND w.rank = c.rank AND w.start_ns < c.end_ns AND w.end_ns > c.start_ns
GROUP BY c.run_id, c.rank, c.compilation;

-- @view compile_steps  a row is a compilation that began in a recorded step.
-- @columns run_id, rank
-- @column compilation index       The compilation.
-- @column step index              Number of the step.
CREATE VIEW compile_steps AS
SELECT c.run_id, c.rank, c.compilation, s.step
FROM compilations c
ASOF JOIN step_ranges s ON s.run_id = c.run_id AND s.rank = c.rank AND c.start_ns >= s.start_ns
WHERE c.start_ns < coalesce(s.next_ns, s.end_ns);

-- @view failed_guards  a row is a compilation of a frame that had compiled code already.
-- @columns run_id, rank
-- @column compile_id id           The compilation.
-- @column turn index              As in `compile_attempts`.
-- @column failed_compile_id id    The latest compiled version of the frame.
-- @column guard text              Its guard that failed.
-- @column guards_failed count     Compiled versions of the frame, each with a guard that failed.
CREATE VIEW failed_guards AS
WITH _numbered AS (
    SELECT r.*, a.turn, try_cast(regexp_extract(failed_compile_id, '(\d+)$', 1) AS BIGINT) AS age
    FROM recompiles r JOIN compile_attempts a USING (run_id, rank, compilation)
)
SELECT
    run_id, rank, compile_id, turn, arg_max(failed_compile_id, (coalesce(age, -1), guard)) AS failed_compile_id,
    arg_max(guard, (coalesce(age, -1), guard)) AS guard, count(*) AS guards_failed
FROM _numbered
GROUP BY run_id, rank, compile_id, turn;

-- @view recompile_notes  a row is a run with a recompilation in a recorded step, or that ranks waited for: the longest.
-- @columns run_id
-- @column note text               What failed where, and who waited.
-- @column is_waited_for bool      Whether other ranks waited for some of them.
CREATE VIEW recompile_notes AS
SELECT
    a.run_id, arg_max(
        concat(
            '; ', 'in step ' || s.step || ' ', 'region ', a.compile_id, ' (', a."where",
            ') was compiled again on rank ', a.rank, ': ', g.guard,
            printf('; %d %s %.1f ms for it', w.waiting_ranks,
                CASE w.waiting_ranks WHEN 1 THEN 'other rank waited' ELSE 'other ranks waited' END, w.waited_ns / 1e6)
        ),
        (coalesce(w.waited_ns, 0), a.dur_ns, -a.compilation)
    ) AS note,
    bool_or(w.waited_ns IS NOT NULL) AS is_waited_for
FROM compile_attempts a
JOIN failed_guards g
    ON g.run_id = a.run_id AND g.rank = a.rank AND g.compile_id = a.compile_id AND g.turn = a.turn
LEFT JOIN compile_steps s ON s.run_id = a.run_id AND s.rank = a.rank AND s.compilation = a.compilation
LEFT JOIN compile_waits w ON w.run_id = a.run_id AND w.rank = a.rank AND w.compilation = a.compilation
WHERE s.step IS NOT NULL OR w.waited_ns IS NOT NULL
GROUP BY a.run_id;
