-- GPU time by what the GPU does.
-- @use intervals
-- @macro gpu_class_lengths(t)  lengths of the unions that the definitions of GPU time are made of, per window.
-- `t` has `window_id` and `class` (compute, comm or copy) beside its intervals. The windows of a track are disjoint,
-- and no interval crosses their edges. As intervals_length, with the furthest end so far of each set of classes: one
-- sort of the track for all.
-- @column window_id index       The window.
-- @column first_ns ns           First start.
-- @column last_ns ns            Last end.
-- @column busy_ns ns            All work.
-- @column kernel_ns ns          Kernels.
-- @column compute_ns ns         Compute kernels.
-- @column comm_ns ns            Communication kernels.
-- @column copy_ns ns            Memcpys and memsets.
CREATE MACRO gpu_class_lengths(t) AS TABLE
WITH _running AS (
    SELECT
        window_id, track, class, start_ns, end_ns,
        max(track_ns(track, end_ns)) OVER before AS any_at,
        max(CASE WHEN class <> 'copy' THEN track_ns(track, end_ns) END) OVER before AS kernel_at,
        max(CASE WHEN class = 'compute' THEN track_ns(track, end_ns) END) OVER before AS compute_at,
        max(CASE WHEN class = 'comm' THEN track_ns(track, end_ns) END) OVER before AS comm_at,
        max(CASE WHEN class = 'copy' THEN track_ns(track, end_ns) END) OVER before AS copy_at
    FROM (SELECT * FROM query_table(t) ORDER BY track, start_ns)
    WINDOW before AS (ROWS UNBOUNDED PRECEDING)
),
_reached AS (
    SELECT
        window_id, class, start_ns, end_ns,
        ns_on_track(track, lag(any_at) OVER ()) AS any_ns, ns_on_track(track, lag(kernel_at) OVER ()) AS kernel_ns,
        ns_on_track(track, lag(compute_at) OVER ()) AS compute_ns, ns_on_track(track, lag(comm_at) OVER ()) AS comm_ns,
        ns_on_track(track, lag(copy_at) OVER ()) AS copy_ns
    FROM _running
)
SELECT
    window_id, min(start_ns) AS first_ns, max(end_ns) AS last_ns,
    sum(grown_ns(start_ns, end_ns, any_ns))::BIGINT AS busy_ns,
    coalesce(sum(grown_ns(start_ns, end_ns, kernel_ns)) FILTER (class <> 'copy'), 0)::BIGINT AS kernel_ns,
    coalesce(sum(grown_ns(start_ns, end_ns, compute_ns)) FILTER (class = 'compute'), 0)::BIGINT AS compute_ns,
    coalesce(sum(grown_ns(start_ns, end_ns, comm_ns)) FILTER (class = 'comm'), 0)::BIGINT AS comm_ns,
    coalesce(sum(grown_ns(start_ns, end_ns, copy_ns)) FILTER (class = 'copy'), 0)::BIGINT AS copy_ns
FROM _reached
GROUP BY window_id;
