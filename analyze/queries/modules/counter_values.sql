-- Counters over time: of Nsight Systems, and the samples of GPUs that collect takes.

-- @view counter_values  a row is a value of a counter.
-- @columns run_group, run_id, rank, device
-- @column name text               The counter.
-- @columns start_ns
-- @column value number            Its value.
CREATE VIEW counter_values AS
WITH _samples AS (
    SELECT
        run_group, run_id, rank, device, start_ns,
        COLUMNS(* EXCLUDE (run_group, run_id, rank, device, start_ns, clock_limits))::DOUBLE
    FROM gpu_samples
)
SELECT run_group, run_id, rank, device, name, start_ns, value FROM counters
UNION ALL
SELECT run_group, run_id, rank, device, name, start_ns, value
FROM (UNPIVOT _samples ON COLUMNS(* EXCLUDE (run_group, run_id, rank, device, start_ns)) INTO NAME name VALUE value);
