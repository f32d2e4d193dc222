-- @use gpu_work
-- Length of the union of all intervals of `gpu_work`, per device: sorted by start, each interval adds what lies behind
-- the furthest end so far. One sort, linear after it.
CREATE VIEW gpu_busy_union AS
WITH ordered AS (
    SELECT
        run_id, rank, run_group, device, start_ns, start_ns + dur_ns AS end_ns,
        max(start_ns + dur_ns) OVER (
            PARTITION BY run_id, rank, device ORDER BY start_ns, dur_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM gpu_work
)
SELECT
    run_id, rank, device, any_value(run_group) AS run_group,
    min(start_ns) AS first_ns, max(end_ns) AS last_ns,
    sum(greatest(0, end_ns - greatest(start_ns, coalesce(reached_ns, start_ns))))::BIGINT AS busy_ns
FROM ordered
GROUP BY run_id, rank, device;
