-- Where on the CPU GPU work comes from.
-- @view work_points  a row is a kernel, memcpy or memset.
-- It comes from the operator or range with its External id; without one (a CUDA graph's, and what no operator launched)
-- from its launch call.
-- @column * of gpu_work
-- @column from_tid id           Thread.
-- @column from_ns ns            Start of the operator or range, or of the launch call; NULL where neither is known.
-- @column from_end_ns ns        End of the operator or range; the start of the launch call.
CREATE VIEW work_points AS
SELECT
    *, CASE WHEN op_id > 0 THEN op_tid ELSE call_tid END AS from_tid,
    CASE WHEN op_id > 0 THEN op_start_ns ELSE call_start_ns END AS from_ns,
    CASE WHEN op_id > 0 THEN op_start_ns + op_dur_ns ELSE call_start_ns END AS from_end_ns
FROM gpu_work;
