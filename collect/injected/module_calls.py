"""Detects calls of torch.nn.Module, and the backward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .torch_internals import find


def hook_modules(before: Callable[[Any], None] | None = None, after: Callable[[Any], None] | None = None) -> list[Any]:
    """Call `before` before, and `after` after each call of a module, with the module; return what removes these hooks.

    Not in code that torch.compile traces, which must find nothing to do in them.
    """
    import torch.nn.modules.module as modules

    is_compiling = _is_compiling()
    _hide_own_hooks(modules)
    handles = []
    if before is not None:

        def pre_hook(module: Any, inputs: Any) -> None:
            if not is_compiling():
                before(module)

        _keep_from_dynamo(pre_hook)
        handles.append(modules.register_module_forward_pre_hook(pre_hook))
    if after is not None:

        def hook(module: Any, inputs: Any, outputs: Any) -> None:
            if not is_compiling():
                after(module)

        _keep_from_dynamo(hook)
        handles.append(modules.register_module_forward_hook(hook, always_call=True))
    return handles


def _keep_from_dynamo(hook: Any) -> None:
    """Keep torch.compile from compiling a hook and what it calls: at a graph break, that takes 0.1 s."""
    set_strategy = find("torch._C._dynamo.eval_frame.set_code_exec_strategy")
    strategy, action = (find(f"torch._C._dynamo.eval_frame.{name}") for name in ("_FrameExecStrategy", "_FrameAction"))
    if set_strategy and strategy and action:
        set_strategy(hook.__code__, strategy(action.SKIP, action.SKIP))
    elif skip := find("torch._C._dynamo.eval_frame.skip_code"):  # before torch 2.7
        skip(hook.__code__)


def _hide_own_hooks(modules: Any) -> None:
    """Let torch.compile warn of hooks of the program only; torch 2.6 warns of none."""
    original = find("torch.nn.modules.module._has_any_global_hook")
    kinds = ("backward_pre", "backward", "forward_pre", "forward")
    hooks: list[Any] = [getattr(modules, f"_global_{kind}_hooks", None) for kind in kinds]
    if original is None or None in hooks or modules._has_any_global_hook is not original:
        return  # it is not there, or replaced

    def has_hook_of_program() -> bool:
        return any(getattr(hook, "__module__", None) != __name__ for kind in hooks for hook in list(kind.values()))

    modules._has_any_global_hook = has_hook_of_program


def call_before_next_module(callback: Callable[[], None]) -> None:
    """Call `callback` once, before the next module call outside the backward pass (which may call modules again)."""
    waiting = True

    def before(module: Any) -> None:
        nonlocal waiting
        if not waiting or in_backward():
            return
        waiting = False
        handle.remove()
        callback()

    [handle] = hook_modules(before)


class ModuleCounter:
    """Counts calls of modules, and calls `on_first` before the first."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        """Start to count."""
        self.count = 0

        def before(module: Any) -> None:
            self.count += 1
            if self.count == 1:
                on_first()

        [self._handle] = hook_modules(before)

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
