"""No profiler: the undisturbed baseline. Only the step metrics are written."""

from __future__ import annotations

from collect.profilers.base import NoOptions, Profiler


class NoProfiler(Profiler[NoOptions]):
    """Runs the command without a profiler."""

    name = "none"
    samples_gpus = True
    Options = NoOptions


PROFILER = NoProfiler
