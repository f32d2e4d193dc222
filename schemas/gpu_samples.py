"""The columns of the collector's GPU samples, which NVML counts: names of the CSV and of the table gpu_samples."""

from __future__ import annotations

STATE = {
    "sm_clock_mhz": "clock of the SMs",
    "memory_clock_mhz": "clock of the memory",
    "power_w": "power draw of the board; NVML averages it over up to a second",
    "temperature_c": "temperature of the GPU",
    "clock_limits": "why clocks are below the most: bits of nvmlClocksEventReasons",
    "memory_used_bytes": "memory in use by all processes, without what the driver reserves",
    "gpu_util_pct": "share of NVML's last sample period in which a kernel ran",
    "processes": "processes with a CUDA context; 0 where the driver does not show them (virtual machines, containers)",
    "other_processes": "those that are not the program's: neither its process nor a child; NULL if they cannot be seen",
}
"""What NVML says of each GPU, at the moment of the sample."""

MIB = 1 << 20
GPM = {
    "sm_active_pct": (2, "SMs that had a warp, averaged over SMs and time"),
    "occupancy_pct": (3, "warps on the SMs, of the most that fit"),
    "tensor_active_pct": (5, "time in which tensor cores worked"),
    "fp64_tensor_active_pct": (6, "the same of FP64 (DFMA)"),
    "fp16_tensor_active_pct": (7, "the same of FP16, BF16, TF32 (HMMA)"),
    "int_tensor_active_pct": (9, "the same of integers (IMMA)"),
    "fp64_active_pct": (11, "time in which FP64 pipes worked"),
    "fp32_active_pct": (12, "time in which FP32 pipes worked"),
    "fp16_active_pct": (13, "time in which FP16 pipes worked"),
    "dram_active_pct": (10, "memory bandwidth, of the most in theory"),
    "pcie_tx_bytes_per_s": (20, "PCIe traffic from the GPU"),
    "pcie_rx_bytes_per_s": (21, "PCIe traffic to the GPU"),
    "nvlink_rx_bytes_per_s": (60, "NVLink traffic to the GPU, all links"),
    "nvlink_tx_bytes_per_s": (61, "NVLink traffic from the GPU, all links"),
}
"""GPM metrics (Hopper and later) by name: number in NVML (NVML_GPM_METRIC_*) and meaning. They are averages since the
last sample that has them: the driver counts ten times a second. NULL between, and where the GPU has none."""

GPU_SAMPLES_CSV = ("rank", "device", "start_ns", *STATE, *GPM)
"""Header of rank-N.gpu_samples.csv. start_ns: when, in ns since the epoch, as torch.profiler's traces."""

_UNITS = {"_mhz": "MHz", "_w": "W", "_c": "°C", "_pct": "%", "_bytes": "B", "_per_s": "B/s"}


def unit(name: str) -> str:
    """The unit that the end of a column's name says."""
    return next((u for end, u in _UNITS.items() if name.endswith(end)), "")
