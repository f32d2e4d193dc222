"""CUDA queries that do not initialise CUDA: a program may still want to fork."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

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
    torch = sys.modules.get("torch")  # not there if Ctrl-C ended its import
    return torch is not None and bool(torch.cuda.is_initialized())


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


def is_capturing() -> bool:
    """Whether a CUDA graph is captured on the current stream: then nothing runs, and nothing may wait for the GPU."""
    import torch

    return uses_cuda() and bool(torch.cuda.is_current_stream_capturing())


def mark() -> Any:
    """Record a point in the work of the current stream; None where that is not possible. Nothing waits for it."""
    import torch

    has_context = find("torch._C._cuda_hasPrimaryContext")
    with contextlib.suppress(RuntimeError):
        # An event would create a context of this process on a GPU that it does not use.
        if not has_context or has_context(torch.cuda.current_device()):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event
    return None


def ns_between(marks: list[Any]) -> list[int] | None:
    """Return the times between marks, once the GPU has reached the last one; None where one is missing."""
    if any(m is None for m in marks):
        return None
    try:
        marks[-1].synchronize()
        return [round(1e6 * a.elapsed_time(b)) for a, b in itertools.pairwise(marks)]
    except (RuntimeError, ValueError):  # marks of several GPUs
        return None


_DETACH = "TEARDOWN_CUPTI"
"""Kineto's variable. torch sets it to 0 where CUDA graphs do not work otherwise."""


@contextlib.contextmanager
def detaching_cupti() -> Iterator[None]:
    """Detach CUPTI after a torch.profiler that stops in this block: it slows the program down until then."""
    if not uses_cuda() or _DETACH in os.environ:
        yield
        return
    os.environ[_DETACH] = "1"
    try:
        yield
    finally:
        del os.environ[_DETACH]
        _let_cupti_detach()


def _let_cupti_detach() -> None:
    """Call CUDA: Kineto detaches CUPTI in such a call, and its thread that waits for one lets no process end."""
    import torch

    for _ in range(3):
        time.sleep(0.05)
        torch.cuda.current_stream().query()


def keep_cupti() -> None:
    """Detach CUPTI no more: the process ends."""
    if uses_cuda():
        os.environ.setdefault(_DETACH, "0")
