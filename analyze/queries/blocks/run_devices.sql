-- Published figures of the GPU of each run; no row for a run whose GPU schemas/devices.toml does not know.
-- @use device_peaks
-- @view run_devices  a row is a run whose GPU schemas/devices.toml knows.
-- @column run_id id             The run.
-- @column * of device_peaks
CREATE VIEW run_devices AS SELECT r.run_id, p.* FROM runs r JOIN device_peaks p USING (gpu_name);
