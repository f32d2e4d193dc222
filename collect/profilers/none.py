"""No profiler: the undisturbed baseline. Leaves the step metrics alone."""

from __future__ import annotations

from collect.profilers.base import NoOptions, Profiler


class NoProfiler(Profiler[NoOptions]):
    """Runs the command as it is."""

    name = "none"
    Options = NoOptions


PROFILER = NoProfiler
