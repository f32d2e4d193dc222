-- Published peak of the link that a kind of copy uses, per run and kind. Host copies go over PCIe, copies between GPUs
-- over NVLink where there is one, both in one direction; a copy within a device reads and writes its memory, so half of
-- that bandwidth.
-- @use run_devices
-- @view copy_peaks  a row is a kind of copy in a run.
-- @column run_id id             The run.
-- @column kind text             HtoD, DtoH, DtoD, PtoP ...
-- @column peak_gb_per_s GB/s    Published peak; NULL where schemas/devices.toml has none.
CREATE VIEW copy_peaks AS
SELECT
    run_id, kind,
    CASE
        WHEN kind IN ('HtoD', 'DtoH') THEN pcie_gb_per_s
        WHEN kind = 'PtoP' THEN coalesce(nvlink_gb_per_s, pcie_gb_per_s)
        WHEN kind = 'DtoD' THEN dram_gb_per_s / 2
    END AS peak_gb_per_s
FROM run_devices CROSS JOIN (SELECT DISTINCT kind FROM memcpys);
