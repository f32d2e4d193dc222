"""Detects calls of torch.nn.Module, and the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def call_before_next_module(callback: Callable[[], None]) -> None:
    """Call `callback` once, before the next module call outside the backward pass (which may call modules again)."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook

    compiler: Any = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", lambda: False)
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


def in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    import torch

    task_id = getattr(torch._C, "_current_graph_task_id", None)
    return task_id is not None and task_id() != -1
