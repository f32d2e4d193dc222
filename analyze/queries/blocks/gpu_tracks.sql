-- GPUs as tracks for the macros of `intervals`: a number sorts faster than run, rank and device do.
-- @table gpu_tracks  a row is a GPU of a process.
-- @column track index           Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column run_group index       Group of runs (--by); NULL without.
CREATE TABLE gpu_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, device)::INTEGER AS track, run_id, rank, device, run_group
FROM (SELECT DISTINCT run_id, rank, device, run_group FROM gpu_segments);

-- @view gpu_timeline  a row is a segment of `gpu_segments` on its track.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column compute_kernels count Compute kernels that run.
-- @column comm_kernels count    Communication kernels that run.
-- @column memcpys count         Memcpys that run.
-- @column memsets count         Memsets that run.
-- @column kernels count         Kernels that run.
-- @column copies count          Memcpys and memsets that run.
CREATE VIEW gpu_timeline AS
SELECT
    t.track, s.start_ns, s.start_ns + s.dur_ns AS end_ns, s.compute_kernels, s.comm_kernels, s.memcpys, s.memsets,
    s.compute_kernels + s.comm_kernels AS kernels, s.memcpys + s.memsets AS copies
FROM gpu_segments s
JOIN gpu_tracks t ON t.run_id = s.run_id AND t.rank = s.rank AND t.device IS NOT DISTINCT FROM s.device;

-- @view gpu_idle  a row is a stretch inside the span of a GPU in which it runs nothing.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column correlation_id id     Of the work that ends it; of work that starts together, the one launched first.
CREATE VIEW gpu_idle AS
SELECT t.track, s.start_ns, s.start_ns + s.dur_ns AS end_ns, s.next_correlation_id AS correlation_id
FROM gpu_segments s
JOIN gpu_tracks t ON t.run_id = s.run_id AND t.rank = s.rank AND t.device IS NOT DISTINCT FROM s.device
WHERE s.dur_ns > 0 AND s.compute_kernels + s.comm_kernels + s.memcpys + s.memsets = 0;
