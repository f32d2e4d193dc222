-- What did torch.compile compile, and what took the time?
--
-- From TORCH_TRACE logs (collect run writes one for each rank that compiles). A frame is a function that Dynamo
-- compiles; F/N is frame F and recompilation N, as in the regions of `compiled`. A graph break ends an attempt, and the
-- next one begins at once: it has the time of both. The phases add up to the duration: Dynamo traces the frame,
-- AOTAutograd traces its backward, Inductor plans the kernels, generates their code, waits for Triton to compile it.
-- Code from a cache costs little of the latter. A backward graph is compiled when it first runs.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column compile_id text         Frame / recompilation.
-- @column attempt index           Attempt at the frame.
-- @column pass text               forward, backward, or runtime: autotuning when the code runs.
-- @column outcome text            compiled, skipped (nothing to compile), failed, restarted, or unfinished.
-- @column function text           The frame.
-- @column where text              The program's line that called it.
-- @column step index              Recorded step that it began in; NULL if outside.
-- @column start_ns ns             Start, since the run's first event; negative before the recording.
-- @column dur_ns ns               Duration; NULL if the log does not say.
-- @column dynamo_ns ns            Tracing the frame, and its guards.
-- @column aot_ns ns               AOTAutograd.
-- @column inductor_ns ns          Inductor without the following.
-- @column codegen_ns ns           Generating and loading code.
-- @column triton_ns ns            Waiting for Triton's compiler.
-- @column fx_cache text           Inductor's cache of graphs: hit, miss or bypass.
-- @column aot_cache text          AOTAutograd's cache.
-- @column guards count            Guards of the code.
-- @column graph_ops count         Operators in the graph.
-- @column graph_breaks count      Graph breaks of this attempt.
-- @column waited_ns ns            How long other ranks waited for this one meanwhile, mean of them; NULL if none did.
-- @column why text                Why it was compiled again, restarted, or failed.
-- @main rank, compile_id, pass, outcome, where, step, dur_ns, dynamo_ns, inductor_ns, triton_ns, fx_cache, why
-- @order run_id, rank, compilation
-- @use compile_log, run_zeros
-- @needs a log of torch.compile
-- @pass all
-- @plot bars y=compile_id x=dynamo_ns,aot_ns,inductor_ns,codegen_ns,triton_ns top=20
-- @drill compile_id compiled-kernels region={compile_id}
WITH breaks AS (
    SELECT run_id, rank, compilation, count(*) AS graph_breaks FROM graph_breaks GROUP BY run_id, rank, compilation
),
nested AS (
    SELECT
        *, least(coalesce(backend_ns, CASE pass WHEN 'forward' THEN inductor_ns ELSE dur_ns END, 0), dur_ns)
            AS in_backend_ns
    FROM compile_attempts
),
parts AS (
    SELECT
        *, CASE WHEN dur_ns IS NOT NULL THEN least(coalesce(inductor_ns, 0), in_backend_ns) END AS in_inductor_ns,
        CASE WHEN dur_ns IS NOT NULL THEN least(coalesce(codegen_ns, 0), in_inductor_ns) END AS in_codegen_ns,
        CASE WHEN dur_ns IS NOT NULL THEN least(coalesce(triton_ns, 0), in_codegen_ns) END AS in_triton_ns
    FROM nested
)
SELECT
    p.run_group, p.run_id, p.rank, p.compile_id, attempt, pass, outcome, function, "where", step,
    start_ns - zero_ns AS start_ns, dur_ns, dur_ns - in_backend_ns AS dynamo_ns,
    in_backend_ns - in_inductor_ns AS aot_ns, in_inductor_ns - in_codegen_ns AS inductor_ns,
    in_codegen_ns - in_triton_ns AS codegen_ns, in_triton_ns AS triton_ns, fx_cache, aot_cache, guards, graph_ops,
    coalesce(graph_breaks, 0) AS graph_breaks, waited_ns,
    coalesce(fail_reason, CASE WHEN pass = 'forward' THEN guard END, restart_reasons) AS why, compilation
FROM parts p
JOIN run_zeros USING (run_id)
LEFT JOIN breaks USING (run_id, rank, compilation)
LEFT JOIN compile_steps USING (run_id, rank, compilation)
LEFT JOIN compile_waits USING (run_id, rank, compilation)
LEFT JOIN failed_guards g
    ON g.run_id = p.run_id AND g.rank = p.rank AND g.compile_id = p.compile_id AND g.turn = p.turn
