"""The profilers that a run can be repeated under. A new one is a module here and a line in PROFILERS."""

from __future__ import annotations

from typing import Any

from collect.options import RunOptions
from collect.profilers.base import Profiler
from collect.profilers.ncu import NcuProfiler
from collect.profilers.none import NoProfiler
from collect.profilers.nsys import NsysProfiler
from collect.profilers.torch_profiler import TorchProfiler

PROFILERS: dict[str, type[Profiler[Any]]] = {p.name: p for p in (NoProfiler, TorchProfiler, NsysProfiler, NcuProfiler)}


def make_profiler(name: str, options: RunOptions) -> Profiler[Any]:
    """The profiler of a name."""
    return PROFILERS[name](options)
