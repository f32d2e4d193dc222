-- GPUs as tracks for the macros of `intervals`: a number sorts faster than run, rank and device do.
-- @use gpu_work
-- @keep gpu_intervals
-- @once gpu_tracks
-- @view gpu_tracks  a row is a GPU of a process.
-- @column track index           Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column run_group index       Group of runs (--by); NULL without.
CREATE VIEW gpu_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, device)::INTEGER AS track, run_id, rank, device, run_group
FROM (SELECT DISTINCT run_id, rank, device, run_group FROM gpu_work);

-- @view gpu_intervals  a row is a kernel, memcpy or memset on its track.
-- @column track index           The track that it stands on.
-- @column kind text             kernel, memcpy or memset.
-- @column class text            What it does: compute, comm (kernels of the family communication) or copy.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW gpu_intervals AS
WITH _comm_kernels AS (
    SELECT run_id, name, 'comm' AS class FROM kernel_names WHERE family = 'communication'
)
SELECT
    t.track, w.kind,
    CASE WHEN w.kind <> 'kernel' THEN 'copy' ELSE coalesce(c.class, 'compute') END AS class,
    w.start_ns, w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) AS end_ns
FROM gpu_work w
JOIN gpu_tracks t ON t.run_id = w.run_id AND t.rank = w.rank AND t.device IS NOT DISTINCT FROM w.device
LEFT JOIN _comm_kernels c ON c.run_id = w.run_id AND c.name = w.name;
