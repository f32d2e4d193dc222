"""The profilers that a run can be repeated under. A new one is a module here and its name in _MODULES."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from collect.options import RunOptions
from collect.profilers.base import Profiler

_MODULES = ("none", "torch_profiler", "nsys", "ncu")
"""Each has its Profiler as PROFILER."""

PROFILERS: dict[str, type[Profiler[Any]]] = {
    p.name: p for p in (import_module(f"{__name__}.{module}").PROFILER for module in _MODULES)
}


def make_profiler(name: str, options: RunOptions) -> Profiler[Any]:
    """The profiler of a name."""
    return PROFILERS[name](options)
