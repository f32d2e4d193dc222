"""No profiler: the undisturbed baseline. Leaves the step metrics alone."""

from __future__ import annotations

from collect.profilers.base import Profiler


class NoProfiler(Profiler):
    """Runs the command as it is."""

    name = "none"
