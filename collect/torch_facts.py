"""What only a process with torch knows of the node: versions and GPUs, under the names of the run manifest.

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import sys
from typing import Any


def torch_facts() -> dict[str, Any]:
    """Fields of schemas.manifest.Manifest that depend on torch; GPUs and CUDA libraries only where there is a GPU."""
    import torch

    facts: dict[str, Any] = {
        "python_version": platform.python_version(),
        "torch_version": str(torch.__version__),
        "cuda_version": torch.version.cuda,
    }
    with contextlib.suppress(Exception):
        # Not imported for this: a program may not use it, and it takes 2 s.
        used = sys.modules.get("torchvision")
        version = used.__version__ if used else importlib.metadata.version("torchvision")
        facts["torchvision_version"] = str(version)
    if not torch.cuda.is_available():
        return facts
    # Asking a broken library for its version may raise anything; a run is not to fail for that.
    with contextlib.suppress(Exception):
        version = torch.backends.cudnn.version()
        facts["cudnn_version"] = str(version) if version else None
    with contextlib.suppress(Exception):
        version = torch.cuda.nccl.version()
        facts["nccl_version"] = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    facts["gpu_devices"] = [_gpu(torch, i) for i in range(torch.cuda.device_count())]
    return facts


def _gpu(torch: Any, index: int) -> dict[str, Any]:
    p = torch.cuda.get_device_properties(index)
    return {
        "index": index,
        "name": p.name,
        "compute_capability": f"{p.major}.{p.minor}",
        "memory_bytes": p.total_memory,
        "sm_count": p.multi_processor_count,
    }
