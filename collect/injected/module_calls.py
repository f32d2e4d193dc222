"""Detects calls of torch.nn.Module, and the backward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .torch_internals import find


def call_before_next_module(callback: Callable[[], None]) -> None:
    """Call `callback` once, before the next module call outside the backward pass (which may call modules again)."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    is_compiling = _is_compiling()
    waiting = True

    def pre_hook(module: Any, inputs: Any) -> None:
        nonlocal waiting
        # torch.compile traces this hook too, and must find nothing to do in it.
        if is_compiling() or not waiting or in_backward():
            return
        waiting = False
        handle.remove()
        callback()

    handle = register_module_forward_pre_hook(pre_hook)


class ModuleCounter:
    """Counts calls of modules, and calls `on_first` before the first."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        """Start to count."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        self.count = 0
        is_compiling = _is_compiling()

        def pre_hook(module: Any, inputs: Any) -> None:
            if is_compiling():
                return
            self.count += 1
            if self.count == 1:
                on_first()

        self._handle = register_module_forward_pre_hook(pre_hook)

    def stop(self) -> None:
        """Stop counting. The hook stays if torch has compiled code with it."""
        if not has_compiled():
            self._handle.remove()


def has_compiled() -> bool:
    """Whether torch.compile has compiled anything in this process: it compiles again when a hook comes or goes."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def _is_compiling() -> Callable[[], bool]:
    import torch

    compiler: Any = getattr(torch, "compiler", None)
    is_compiling: Callable[[], bool] = getattr(compiler, "is_compiling", lambda: False)
    return is_compiling


def in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    task_id = find("torch._C._current_graph_task_id")
    return task_id is not None and task_id() != -1
