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
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s, the longest %s (%s); each GPU is idle for %s of them',
        counted(i.calls, 'range of the compiler', 'ranges of the compiler'), ms(i.longest_ns), i.longest_name,
        ms(i.ns / gpus)) || coalesce(n.note, '') AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source
FROM set_up_idle('compilation') i
JOIN run_gpus g USING (run_id)
LEFT JOIN recompile_notes n USING (run_id)
