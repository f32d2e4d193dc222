-- @use cpu_tracks
-- Operators that no other operator encloses, one after the other on each thread, and the threads that have any.
CREATE VIEW outer_ops AS
WITH reached AS (
    SELECT
        run_group, run_id, rank, tid, name, op_id, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY track ORDER BY start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM cpu_intervals
    WHERE kind = 'op'
)
SELECT * EXCLUDE (reached_ns) FROM reached WHERE reached_ns IS NULL OR start_ns >= reached_ns;

CREATE VIEW outer_op_threads AS SELECT DISTINCT run_id, rank, tid FROM cpu_ops;
