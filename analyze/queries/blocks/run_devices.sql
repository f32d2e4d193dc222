-- Published figures of the GPU of each run; no row for a run whose GPU schemas/devices.toml does not know.
CREATE VIEW run_devices AS SELECT r.run_id, p.* FROM runs r JOIN device_peaks p USING (gpu_name);
