-- Counters over time: of Nsight Systems and of Chrome traces, and the GPU and host samples that collect takes.

-- @view counter_values  a row is a value of a counter.
-- @columns run_group, run_id, rank, device
-- @column name text               The counter.
-- @columns start_ns
-- @column value number            Its value.
-- @column kernel text             The kernel that it is a metric of, which then says the start; NULL for a sample.
CREATE VIEW counter_values AS
WITH _samples AS (
    SELECT
        run_group, run_id, rank, device, start_ns,
        COLUMNS(* EXCLUDE (run_group, run_id, rank, device, start_ns, clock_limits))::DOUBLE
    FROM gpu_samples
),
-- A launch of a CUDA graph is one call with many kernels.
_launched AS (
    SELECT run_id, rank, correlation_id, min(start_ns) AS start_ns
    FROM kernels SEMI JOIN (FROM counters WHERE kernel IS NOT NULL) USING (run_id, rank, correlation_id)
    GROUP BY run_id, rank, correlation_id
)
SELECT
    run_group, run_id, rank, device, name, CASE WHEN kernel IS NULL THEN c.start_ns ELSE l.start_ns END AS start_ns,
    value, kernel
FROM counters c LEFT JOIN _launched l USING (run_id, rank, correlation_id)
UNION ALL
SELECT run_group, run_id, rank, device, name, start_ns, value, NULL
FROM (UNPIVOT _samples ON COLUMNS(* EXCLUDE (run_group, run_id, rank, device, start_ns)) INTO NAME name VALUE value);
