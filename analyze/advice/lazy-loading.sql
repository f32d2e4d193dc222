-- CUDA loads kernels at their first use
--
-- Saving: Time in which a GPU is idle and CUDA loads modules or functions, mean over the GPUs. It is spent once in a
-- process, not in every step.
-- Of: idle time
-- See: health
-- Try: warm up before measuring: run a step of each shape before the recording begins. CUDA_MODULE_LOADING=EAGER loads
-- all kernels at the start.
-- @use findings
-- @needs work on GPUs and loads of kernels
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s, the longest %s (%s); each GPU is idle for %s of them',
        counted(i.calls, 'load', 'loads'), ms(i.longest_ns), i.longest_name, ms(i.ns / gpus)) AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source
FROM set_up_idle('loading') i JOIN run_gpus g USING (run_id)
