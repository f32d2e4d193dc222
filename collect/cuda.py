"""What can be asked of CUDA without beginning it: a program may want to fork first.

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import contextlib
import os


def has_cuda() -> bool:
    """Whether torch can use a GPU, without initialising CUDA."""
    import torch

    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return bool(torch.cuda.is_available())
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def synchronize() -> None:
    """Wait for all GPUs that this process uses, so that a recording holds whole steps."""
    import torch

    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            # Synchronising another rank's GPU would put a context of this process on it.
            if torch._C._cuda_hasPrimaryContext(index):
                with contextlib.suppress(RuntimeError):
                    torch.cuda.synchronize(index)
