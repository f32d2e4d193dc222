-- @use gpu_work, launch_calls
-- The phases of the training steps as ranges on the CPU, one after the other on each rank. Ranges named like the
-- collector's phases; only for a rank without any, what torch itself annotates.
CREATE VIEW phase_ranges AS
WITH named AS (
    SELECT
        run_id, rank, run_group, start_ns, dur_ns,
        CASE
            WHEN name IN ('data', 'h2d', 'forward', 'loss', 'backward', 'optimizer') THEN name
            WHEN name LIKE 'enumerate(DataLoader)%' THEN 'data'
            WHEN name IN ('DistributedDataParallel.forward', 'DataParallel.forward') THEN 'forward'
            WHEN name LIKE 'Optimizer.step#%' OR name LIKE 'Optimizer.zero_grad#%' THEN 'optimizer'
        END AS phase,
        name IN ('data', 'h2d', 'forward', 'loss', 'backward', 'optimizer') AS own
    FROM ranges
    WHERE origin IN ('record_function', 'nvtx')
)
SELECT run_id, rank, run_group, phase, start_ns, dur_ns
FROM named
WHERE phase IS NOT NULL
QUALIFY own OR NOT bool_or(own) OVER (PARTITION BY run_id, rank);

-- GPU work with the phase whose range its launch call began in: `phase` and `phase_start_ns` are NULL where there is
-- none.
CREATE VIEW gpu_work_phases AS
WITH launched AS (
    SELECT w.*, l.start_ns AS launch_ns
    FROM gpu_work w LEFT JOIN launch_calls l USING (run_id, rank, correlation_id)
),
latest AS (
    SELECT l.*, p.phase AS latest_phase, p.start_ns AS latest_start_ns, p.start_ns + p.dur_ns AS latest_end_ns
    FROM launched l ASOF LEFT JOIN phase_ranges p
        ON p.run_id = l.run_id AND p.rank = l.rank AND l.launch_ns >= p.start_ns
)
SELECT
    run_id, rank, run_group, device, stream, kind, name, correlation_id, op_id, start_ns, dur_ns,
    CASE WHEN launch_ns < latest_end_ns THEN latest_phase END AS phase,
    CASE WHEN launch_ns < latest_end_ns THEN latest_start_ns END AS phase_start_ns
FROM latest;
