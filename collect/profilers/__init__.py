"""The profilers to record with: the modules here that define PROFILER, a subclass of Profiler."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from collect.options import RunOptions
from collect.profilers.base import Profiler

_MODULES = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))

PROFILERS: dict[str, type[Profiler[Any]]] = {m.PROFILER.name: m.PROFILER for m in _MODULES if hasattr(m, "PROFILER")}


def make_profiler(name: str, options: RunOptions) -> Profiler[Any]:
    """Return the profiler with this name."""
    return PROFILERS[name](options)
