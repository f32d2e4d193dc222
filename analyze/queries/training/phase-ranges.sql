-- When does each phase of the training steps run on the CPU?
--
-- The phases of `phases`, on the time axis of `memory-timeline`: 0 is the first allocator event of the rank's GPUs, or
-- without one, of its CPU. Ranks without allocator events are left out. Phases that began earlier start below 0.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column phase text              Phase of the training step.
-- @column start_ns ns             Its start.
-- @column dur_ns ns               Its length.
-- @order run_id, rank, start_ns, phase
-- @use phases
-- @needs ranges or a backward pass (phases, see `phases`), and allocator events (profile_memory=True)
WITH origins AS (
    SELECT
        run_id, rank,
        coalesce(min(start_ns) FILTER (device_type NOT IN ('cpu', 'mkldnn')), min(start_ns)) AS first_ns
    FROM memory_events
    GROUP BY run_id, rank
)
SELECT run_group, run_id, rank, phase, start_ns - first_ns AS start_ns, dur_ns
FROM phase_ranges JOIN origins USING (run_id, rank)
