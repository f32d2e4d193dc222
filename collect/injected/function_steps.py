"""Detects calls of the function that the user has named as the step (--step-function)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .module_calls import call_before_next_module, hook_modules, in_backward
from .nesting import Nesting
from .torch_internals import find

MODULE_CALL = "torch.nn:Module.__call__"


class FunctionSteps:
    """Calls `on_step` at the end of each outermost call of a function, named as MODULE:FUNCTION or MODULE:CLASS.METHOD.

    The function is looked up when a torch.nn.Module is called or a CUDA graph is replayed, until it is found: by then
    the program has imported or defined it. So its first call may pass uncounted.
    """

    def __init__(self, name: str, on_step: Callable[[], None], inactive: Callable[[], bool]) -> None:
        """Begin to look for the function. Nothing is detected while `inactive` returns True."""
        self._name = name
        self._on_step = on_step
        self._inactive = inactive
        self._nesting = Nesting()
        self._found = False
        if name == MODULE_CALL:
            # torch.compile would not compile through a replaced `__call__`.
            hook_modules(lambda _: self._nesting.enter(), lambda _: self._leave())
        else:
            call_before_next_module(self._find)
            self._find_at_replays()

    def end_of_program(self) -> None:
        """Do nothing: the end of each call is detected."""

    def _find(self) -> None:
        if not self._inactive() and not self._look_up():
            call_before_next_module(self._find)

    def _look_up(self) -> bool:
        """Replace the function, unless that is done; return whether it is there."""
        if self._found:
            return True
        module, _, path = self._name.partition(":")
        *owners, name = path.split(".")
        try:
            owner: Any = functools.reduce(getattr, owners, sys.modules[module])
            original = getattr(owner, name)
        except (KeyError, AttributeError):
            return False

        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            self._nesting.enter()
            try:
                return original(*args, **kwargs)
            finally:
                self._leave()

        setattr(owner, name, step)
        self._found = True
        return True

    def _find_at_replays(self) -> None:
        """Look for the function at each replay until it is found: a loop of replays calls no module."""
        graph_class = find("torch.cuda.CUDAGraph")
        if graph_class is None:
            return
        original = graph_class.replay

        @functools.wraps(original)
        def replay(graph: Any) -> Any:
            if self._inactive() or self._look_up():
                graph_class.replay = original
            return original(graph)

        graph_class.replay = replay

    def _leave(self) -> None:
        if self._nesting.leave() and not in_backward() and not self._inactive():
            self._on_step()
