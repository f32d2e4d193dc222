"""Published peaks of GPUs by their driver name. The figures are in `devices.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DEVICES_FILE = Path(__file__).with_name("devices.toml")
_BRAND = re.compile(r"^(?:(?:NVIDIA|AMD|Tesla|GeForce|Instinct)\s+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as the driver lists it: dense peaks at boost clock; None where the GPU lacks the feature, or no data
    sheet states the figure."""

    name: str
    match: str
    """Regex for the whole driver name without the brand."""
    source: str
    """Where the figures were published."""
    compute_capability: str
    """CUDA compute capability, e.g. 9.0; the gfx target of AMD GPUs."""
    memory_gb: float
    dram_gb_per_s: float
    fp32_tflops: float | None = None
    sm_count: int | None = None
    """Streaming multiprocessors (compute units on AMD)."""
    fp64_tflops: float | None = None
    fp16_tflops: float | None = None
    """Packed half precision outside tensor cores."""
    fp64_tensor_tflops: float | None = None
    tf32_tensor_tflops: float | None = None
    fp16_tensor_tflops: float | None = None
    bf16_tensor_tflops: float | None = None
    fp8_tensor_tflops: float | None = None
    int8_tensor_tops: float | None = None
    fp4_tensor_tflops: float | None = None
    l2_mb: float | None = None
    pcie_gb_per_s: float | None = None
    """PCIe, per direction."""
    nvlink_gb_per_s: float | None = None
    """Sum over all NVLink or Infinity Fabric links, per direction."""


@cache
def devices() -> tuple[Device, ...]:
    """Return all devices of the file."""
    document = tomllib.loads(_DEVICES_FILE.read_text(encoding="utf-8"))
    return tuple(Device(**table) for table in document["device"])


@cache
def lookup(gpu_name: str) -> Device | None:
    """Return the device with this name in the driver, nvidia-smi or torch, or None."""
    bare = _BRAND.sub("", " ".join(gpu_name.split()))
    return next((device for device in devices() if re.fullmatch(device.match, bare)), None)
