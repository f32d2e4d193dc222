"""Samples the state of AMD GPUs by AMD SMI, for `sampler`.

Written from the documentation of the package amdsmi (ROCm 6 and later); not run on AMD hardware.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from schemas.gpu_samples import GPM, MIB, STATE


def amd_gpus() -> list[AmdGpu]:
    """Return the AMD GPUs of this node; none without the package amdsmi (it comes with ROCm) or its driver."""
    try:
        import amdsmi
    except (ImportError, OSError, KeyError):  # the package loads a library of ROCm
        return []
    try:
        amdsmi.amdsmi_init()
        return [AmdGpu(amdsmi, handle) for handle in amdsmi.amdsmi_get_processor_handles()]
    except amdsmi.AmdSmiException:
        return []


def _times(value: Any, factor: int) -> Any:
    return value * factor if isinstance(value, int | float) else None  # a text would be repeated


class AmdGpu:
    """One GPU, sampled by AMD SMI."""

    def __init__(self, amdsmi: Any, handle: Any) -> None:
        self._amdsmi, self._handle = amdsmi, handle
        self.name = str(amdsmi.amdsmi_get_gpu_device_bdf(handle)).lower()
        """The PCI address, as `torch_facts.used_gpus` has it: its UUIDs are not those of HIP."""

    def sample(self) -> list[Any]:
        """One row: the name, the time, and a value of each column; None where the GPU does not have it."""
        now = time.time_ns()
        smi, handle = self._amdsmi, self._handle
        hottest, current = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        ask: dict[str, Callable[[], Any]] = {
            "sm_clock_mhz": lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)["clk"],
            "memory_clock_mhz": lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.MEM)["clk"],
            "power_w": self._power,
            "temperature_c": lambda: smi.amdsmi_get_temp_metric(handle, hottest, current),
            "memory_used_bytes": lambda: _times(smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"], MIB),
            "gpu_util_pct": lambda: smi.amdsmi_get_gpu_activity(handle)["gfx_activity"],
        }
        values = {}
        for name, value in ask.items():
            with suppress(smi.AmdSmiException, KeyError):
                found = value()
                values[name] = found if isinstance(found, int | float) else None  # "N/A"
        return [self.name, now, *(values.get(name) for name in (*STATE, *GPM))]

    def _power(self) -> Any:
        """Return the power in W: recent GPUs have the current one, others an average."""
        known = self._amdsmi.amdsmi_get_power_info(self._handle)
        powers = (known.get(name) for name in ("current_socket_power", "average_socket_power"))
        return next((power for power in powers if isinstance(power, int | float)), None)
