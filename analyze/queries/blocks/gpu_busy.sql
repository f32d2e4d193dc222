-- @use gpu_tracks, intervals
-- Length of the union of all intervals of `gpu_work`, per device.
CREATE VIEW gpu_busy_union AS
SELECT t.run_id, t.rank, t.device, t.run_group, l.first_ns, l.last_ns, l.covered_ns AS busy_ns
FROM intervals_length('gpu_intervals') l JOIN gpu_tracks t USING (track);
