-- The training steps of each rank on the CPU: ProfilerStep#N, or where a rank has none, the collector's NVTX ranges
-- `step`. next_ns is the start of the step that follows, NULL for the last.
CREATE VIEW step_ranges AS
WITH named AS (
    SELECT
        run_id, rank, run_group, start_ns, start_ns + dur_ns AS end_ns, origin = 'profiler_step' AS own,
        try_cast(regexp_extract(name, '\d+$') AS INTEGER) AS number
    FROM ranges
    WHERE origin = 'profiler_step' OR origin = 'nvtx' AND name = 'step'
),
chosen AS (
    SELECT * FROM named QUALIFY own OR NOT bool_or(own) OVER (PARTITION BY run_id, rank)
)
SELECT
    run_id, rank, run_group, start_ns, end_ns,
    coalesce(number, row_number() OVER in_order - 1)::INTEGER AS step,
    lead(start_ns) OVER in_order AS next_ns
FROM chosen
WINDOW in_order AS (PARTITION BY run_id, rank ORDER BY start_ns);
