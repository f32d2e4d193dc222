"""CUDA queries that do not initialise CUDA: a program may still want to fork."""

from __future__ import annotations

import contextlib
import os

from .torch_internals import find


def has_cuda() -> bool:
    """Whether torch can use a GPU, without initialising CUDA."""
    import torch

    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    previous = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return bool(torch.cuda.is_available())
    finally:
        if previous is None:
            del os.environ[name]
        else:
            os.environ[name] = previous


def uses_cuda() -> bool:
    """Whether this process has initialised CUDA."""
    import torch

    return bool(torch.cuda.is_initialized())


def synchronize() -> None:
    """Wait for all GPUs that this process uses, so that a recording contains whole steps."""
    import torch

    has_context = find("torch._C._cuda_hasPrimaryContext")
    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            # To synchronise another rank's GPU would create a context of this process on it.
            if has_context(index) if has_context else index == torch.cuda.current_device():
                with contextlib.suppress(RuntimeError):
                    torch.cuda.synchronize(index)
