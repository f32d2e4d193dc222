-- torch.compile compiles during the recording
--
-- Saving: Time in which a GPU is idle and Dynamo or Inductor compile, mean over the GPUs; minus lazy loading and
-- autotuning. It is spent once for each graph.
-- Of: idle time
-- See: recompiles
-- Try: start recording after it (more warm-up steps). If it goes on: recompilations (`recompiles` says which guard
-- fails), dynamic shapes (mark_dynamic, dynamic=True), constant batch sizes; the compile cache for later starts.
-- @use compile_log, findings
-- @needs work on GPUs and compiled code
SELECT f.* REPLACE (evidence || coalesce(n.note, '') AS evidence)
FROM set_up_findings('compilation', 'range of the compiler', 'ranges of the compiler') f
LEFT JOIN recompile_notes n USING (run_id)
