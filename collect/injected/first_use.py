"""Detects when a process first uses torch for work of its own: CUDA, a process group, or a module."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from .module_calls import call_before_next_module
from .torch_internals import find


class FirstUse:
    """Calls `callback` when this process, or one forked from it, first initialises CUDA or a process group.

    The callback may be called more than once: for each of these, and for each further process group. It is not called
    in a DataLoader worker, which lives as long as there is data.
    """

    def __init__(self, callback: Callable[[], None]) -> None:
        """Patch torch's functions."""
        self._callback = callback
        self._patch_cuda_init()
        self._patch_init_process_group()

    def watch_modules(self) -> None:
        """Also call back before this process, but not one forked from it, first calls a torch.nn.Module."""
        pid = os.getpid()
        call_before_next_module(lambda: self.notify() if os.getpid() == pid else None)

    def notify(self) -> None:
        """Call back, unless this process is a DataLoader worker."""
        data = sys.modules.get("torch.utils.data")
        if data is None or data.get_worker_info() is None:
            self._callback()

    def _patch_cuda_init(self) -> None:
        import torch

        cuda: Any = torch.cuda
        original = find("torch.cuda._lazy_init")
        if original is None:
            return

        @functools.wraps(original)
        def _lazy_init(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            # Calls queued for CUDA's initialisation run inside it, and call this function again.
            if cuda.is_initialized():
                if cuda._lazy_init is _lazy_init:
                    cuda._lazy_init = original
                self.notify()
            return result

        cuda._lazy_init = _lazy_init

    def _patch_init_process_group(self) -> None:
        distributed: Any = sys.modules.get("torch.distributed")
        original = getattr(distributed, "init_process_group", None)
        if original is None:
            return

        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self.notify()
            return result

        for module in (distributed, distributed.distributed_c10d):
            module.init_process_group = init_process_group
