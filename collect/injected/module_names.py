"""Names the running module, for what is recorded while it runs."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from .module_calls import hook_modules


class ModuleNames:
    """Tells a function the name of the innermost running module at each change: GPT.layers.0.attention, or nothing.

    A name begins with the class of the outermost module.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        """Begin with the next call of a module. A forked child tells nothing: it must not use CUDA."""
        self._tell = tell
        self._pid = os.getpid()
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}
        """By id of the module. The reference says whether the id is that of another module now."""
        self._thread = threading.local()
        hook_modules(self._enter, self._leave)

    def _enter(self, module: Any) -> None:
        if os.getpid() != self._pid:
            return
        running: list[str] = self._thread.__dict__.setdefault("running", [])
        running.append(self._name(module))
        self._tell(running[-1])

    def _leave(self, module: Any) -> None:
        running: list[str] = self._thread.__dict__.get("running", [])
        if running and os.getpid() == self._pid:  # nothing runs if the module was called before this began
            running.pop()
            self._tell(running[-1] if running else "")

    def _name(self, module: Any) -> str:
        if self._known(module) is None:
            for name, part in module.named_modules(prefix=type(module).__name__):
                if self._known(part) is None:
                    self._names[id(part)] = (weakref.ref(part), name)
        return self._names[id(module)][1]

    def _known(self, module: Any) -> str | None:
        reference, name = self._names.get(id(module), (None, None))
        return name if reference is not None and reference() is module else None
