-- @use gpu_work
-- Each GPU of each process as a track for the macros of `intervals`: a number sorts faster than run, rank and device
-- do.
CREATE VIEW gpu_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, device)::INTEGER AS track, run_id, rank, device, run_group
FROM (SELECT DISTINCT run_id, rank, device, run_group FROM gpu_work);

-- All GPU work on its track, by what it does: compute, comm (kernels of the family communication), copy (memcpys,
-- memsets).
CREATE VIEW gpu_intervals AS
WITH comm_kernels AS (
    SELECT run_id, name, 'comm' AS class FROM kernel_names WHERE family = 'communication'
)
SELECT
    t.track, w.kind,
    CASE WHEN w.kind <> 'kernel' THEN 'copy' ELSE coalesce(c.class, 'compute') END AS class,
    w.start_ns, w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) AS end_ns
FROM gpu_work w
JOIN gpu_tracks t ON t.run_id = w.run_id AND t.rank = w.rank AND t.device IS NOT DISTINCT FROM w.device
LEFT JOIN comm_kernels c ON c.run_id = w.run_id AND c.name = w.name;
