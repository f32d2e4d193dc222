-- @use gpu_tracks, launch_calls
-- What gaps are between: GPU work on its track, per device or per stream of it.
CREATE VIEW gaps_per_stream AS
SELECT t.track, w.stream, w.run_id, w.rank, w.correlation_id, w.start_ns, w.start_ns + w.dur_ns AS end_ns
FROM gpu_work w JOIN gpu_tracks t ON t.run_id = w.run_id AND t.rank = w.rank AND t.device IS NOT DISTINCT FROM w.device
WHERE w.dur_ns > 0;
CREATE VIEW gaps_per_device AS SELECT * REPLACE (NULL::BIGINT AS stream) FROM gaps_per_stream;

-- The gaps in one of these, as intervals_gaps has them, with the correlation id of the work that ends the gap and the
-- start of the call that launched it (NULL where the trace has none). Of work that starts together, the one launched
-- first.
CREATE MACRO gpu_gaps(t) AS TABLE
WITH reached AS (
    SELECT
        *, max(end_ns) OVER (
            PARTITION BY track, stream ORDER BY start_ns, correlation_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM query_table(t)
)
SELECT r.track, r.stream, r.correlation_id, r.reached_ns AS start_ns, r.start_ns AS end_ns, l.start_ns AS launch_ns
FROM reached r LEFT JOIN launch_calls l USING (run_id, rank, correlation_id)
WHERE r.start_ns > r.reached_ns;

-- Why the GPU was idle: host_wait, if nothing was queued when it ran out of work; kernel_wait, if the next work was
-- queued and the gap is shorter than the threshold; else other, and so where no launch call is known.
CREATE MACRO idle_cause(start_ns, end_ns, launch_ns, threshold_ns) AS CASE
    WHEN launch_ns > start_ns THEN 'host_wait'
    WHEN launch_ns IS NOT NULL AND end_ns - start_ns < threshold_ns THEN 'kernel_wait'
    ELSE 'other'
END;
