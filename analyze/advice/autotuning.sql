-- Kernels are autotuned during the recording
--
-- Saving: Time in which a GPU is idle while an operator or Triton times kernels to choose one, mean over the GPUs;
-- minus lazy loading. It is spent once for each shape.
-- Of: idle time
-- See: ops
-- Try: start recording after it; keep shapes constant (padding, drop_last=True), so that no new ones are tried;
-- torch.backends.cudnn.benchmark = False where shapes change.
-- @use findings
-- @needs work on GPUs and operators (that time kernels)
SELECT
    g.run_group, run_id, i.ns / gpus AS saving_ns,
    printf('%s, the longest %s (%s); each GPU is idle for %s of them',
        counted(i.calls, 'trial', 'trials'), ms(i.longest_ns), i.longest_name, ms(i.ns / gpus)) AS evidence,
    i.longest.rank, i.longest.device, i.longest.start_ns, i.longest.end_ns, i.source
FROM set_up_idle('autotuning') i JOIN run_gpus g USING (run_id)
