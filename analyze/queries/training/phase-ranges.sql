-- When does each phase of the training steps run on the CPU?
--
-- The phases of `phases`, on the time axis of `memory-timeline`. Ranks without allocator events or a memory snapshot
-- are left out.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column phase text              Phase of the training step.
-- @column start_ns ns             Its start, since the first event of the run (`run_zeros`).
-- @column dur_ns ns               Its length.
-- @order run_id, rank, start_ns, phase
-- @use phases, run_zeros
-- @needs ranges or a backward pass (phases, see `phases`), and allocator events (profile_memory=True)
--       or a memory snapshot
-- @full ranges
SELECT run_group, run_id, rank, phase, start_ns - zero_ns AS start_ns, dur_ns
FROM phase_ranges JOIN run_zeros USING (run_id)
SEMI JOIN (
    SELECT run_id, rank FROM memory_events UNION ALL SELECT run_id, rank FROM allocator_events
) USING (run_id, rank)
