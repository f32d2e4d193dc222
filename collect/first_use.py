"""When a process begins to use torch for work of its own: CUDA, a process group, or a module.

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from .module_calls import at_next_module


class FirstUse:
    """Calls `then` when this process, or one that is forked from it, first uses torch in one of these ways.

    It is called again for another way, and for a second process group. A DataLoader's worker uses torch in none: it
    works for as long as there is data.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        """Wait for CUDA and a process group."""
        self._then = then
        self._wait_for_cuda()
        self._wait_for_a_process_group()

    def _used(self) -> None:
        data = sys.modules.get("torch.utils.data")
        if data is None or data.get_worker_info() is None:
            self._then()

    def _wait_for_cuda(self) -> None:
        import torch

        cuda: Any = torch.cuda
        begin = cuda._lazy_init

        @functools.wraps(begin)
        def _lazy_init(*args: Any, **kwargs: Any) -> Any:
            result = begin(*args, **kwargs)
            # Calls that were queued for CUDA's beginning come here within it.
            if cuda.is_initialized():
                if cuda._lazy_init is _lazy_init:
                    cuda._lazy_init = begin
                self._used()
            return result

        cuda._lazy_init = _lazy_init

    def _wait_for_a_process_group(self) -> None:
        distributed: Any = sys.modules.get("torch.distributed")
        begin = getattr(distributed, "init_process_group", None)
        if begin is None:
            return

        @functools.wraps(begin)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            result = begin(*args, **kwargs)
            self._used()
            return result

        for module in (distributed, distributed.distributed_c10d):
            module.init_process_group = init_process_group

    def wait_for_a_module(self) -> None:
        """Also when this process calls a torch.nn.Module, but not one that is forked from it."""
        pid = os.getpid()
        at_next_module(lambda: self._used() if os.getpid() == pid else None)
