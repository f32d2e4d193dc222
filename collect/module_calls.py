"""When a program calls a torch.nn.Module; and whether it is in the backward pass.

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def at_next_module(then: Callable[[], None]) -> None:
    """Call `then` before the next module that is called outside the backward pass, which calls some again."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook

    compiler: Any = getattr(torch, "compiler", None)
    compiling = getattr(compiler, "is_compiling", lambda: False)
    waiting = True

    def called(module: Any, inputs: Any) -> None:
        nonlocal waiting
        # torch.compile, which reads this, finds nothing to do here.
        if compiling() or not waiting or in_backward():
            return
        waiting = False
        hook.remove()
        then()

    hook = register_module_forward_pre_hook(called)


def in_backward() -> bool:
    """Whether this thread is at work for a backward pass."""
    import torch

    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1
