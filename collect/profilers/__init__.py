"""The profilers to record with. To add one, add a module here and its name to _MODULES."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from collect.options import RunOptions
from collect.profilers.base import Profiler

_MODULES = ("none", "torch_profiler", "nsys", "ncu")
"""Each defines PROFILER, a subclass of Profiler."""

PROFILERS: dict[str, type[Profiler[Any]]] = {
    p.name: p for p in (import_module(f"{__name__}.{module}").PROFILER for module in _MODULES)
}


def make_profiler(name: str, options: RunOptions) -> Profiler[Any]:
    """Return the profiler with this name."""
    return PROFILERS[name](options)
