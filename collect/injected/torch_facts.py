"""What only a process with torch knows of the node: versions and GPUs, under the field names of the run manifest."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import sys
from typing import Any

from .packages import installed_packages


def torch_facts() -> dict[str, Any]:
    """Fields of schemas.manifest.Manifest that depend on torch; CUDA libraries and GPUs only if there is a GPU."""
    import torch

    facts: dict[str, Any] = {
        "python_version": platform.python_version(),
        "torch_version": str(torch.__version__),
        "cuda_version": torch.version.cuda,
    }
    with contextlib.suppress(Exception):
        # Not imported for its version: that takes 2 s, and the program may not use it.
        imported = sys.modules.get("torchvision")
        version = imported.__version__ if imported else importlib.metadata.version("torchvision")
        facts["torchvision_version"] = str(version)
    with contextlib.suppress(Exception):  # a damaged environment
        facts["packages"] = installed_packages()
    if not torch.cuda.is_available():
        return facts
    # A broken library may raise anything when queried for its version, which must not fail the run.
    with contextlib.suppress(Exception):
        version = torch.backends.cudnn.version()
        facts["cudnn_version"] = str(version) if version else None
    with contextlib.suppress(Exception):
        version = torch.cuda.nccl.version()
        facts["nccl_version"] = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    facts["gpu_devices"] = [_gpu(torch, i) for i in range(torch.cuda.device_count())]
    return facts


def _gpu(torch: Any, index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    return {
        "index": index,
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "sm_count": properties.multi_processor_count,
    }


def used_gpus() -> dict[str, int]:
    """Return the name of each GPU on which torch holds memory, and its index; none before torch 2.4.

    The name is the UUID as NVML writes it; of an AMD GPU its PCI address, which torch knows since 2.7.
    """
    import torch

    if not torch.cuda.is_initialized():
        return {}
    gpus = {}
    for index in range(torch.cuda.device_count()):
        name = _name(torch.cuda.get_device_properties(index), torch.version.hip is not None)
        if name is not None and torch.cuda.memory_reserved(index):
            gpus[name] = index
    return gpus


def _name(properties: Any, is_amd: bool) -> str | None:
    if not is_amd:
        uuid = getattr(properties, "uuid", None)
        return None if uuid is None else f"GPU-{uuid}"
    if not hasattr(properties, "pci_bus_id"):
        return None
    return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
