-- Length of the union of all intervals of `gpu_work`, per device.
-- @use gpu_tracks, intervals
-- @view gpu_busy_union  a row is a GPU of a process.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column first_ns ns           First start.
-- @column last_ns ns            Last end.
-- @column busy_ns ns            Length of the union.
CREATE VIEW gpu_busy_union AS
SELECT t.run_id, t.rank, t.device, t.run_group, l.first_ns, l.last_ns, l.covered_ns AS busy_ns
FROM intervals_length('gpu_intervals') l JOIN gpu_tracks t USING (track);
