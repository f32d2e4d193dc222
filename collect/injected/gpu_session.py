"""One recording of GPU work alone, by CUPTI's activity records where cupti-python is there, else by torch.profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .bounds import Bounds, call_in_main_thread
from .session import BlockSession, Session
from .step_blocks import GPU
from .trace_files import private_folder


def open_session(
    kind: str, config: dict[str, Any], step: int, warms_up: bool = False, whole: bool = False
) -> BlockSession:
    """Start to record a block of this kind; for the other arguments see Session."""
    if kind != GPU:
        return Session(config, step, warms_up, whole)
    from .gpu_activities import unavailable

    if reason := unavailable():
        return Session(config, step, warms_up, whole, gpu_only=reason)
    return GpuSession(config, warms_up, whole)


class GpuSession(BlockSession):
    """Records kernels, copies and fills; does not write those of the warm-up step."""

    def __init__(self, config: dict[str, Any], warms_up: bool, whole: bool) -> None:
        """Start to record."""
        from .gpu_activities import GpuActivities

        self._new_activities = GpuActivities
        self._running = False
        self._seconds, self._whole = config["seconds"], whole
        self._start()
        self.recorder = self._activities.recorder
        if not warms_up:
            self._start_bounds()

    def _start(self) -> None:
        if not self._running:
            self._running = True
            self._activities = self._new_activities()
            self._activities.start()

    def end_warmup(self) -> None:
        """Bound what is recorded from now on."""
        self._activities.end_warmup()
        self._start_bounds()

    def _start_bounds(self) -> None:
        if self._seconds:
            # A hook of modules would make torch.compile compile again within the block.
            self._bounds = Bounds(None, self._seconds, False, self._on_bound, self._start if self._whole else None)

    def _on_bound(self) -> None:
        """Stop in the main thread, as soon as that runs Python code: CUPTI is not detached while it calls CUDA."""
        self._pending = call_in_main_thread(self._pause)

    def _pause(self) -> None:
        if self.ended_after:
            self._stop()

    def _stop(self) -> None:
        if self._running:
            self._running = False
            self._activities.stop()

    def stop(self) -> None:
        """Stop, unless a bound has."""
        if self._bounds:
            self._bounds.stop()
        self._stop()

    def write(self, folder: Path, stem: str, steps: list[tuple[int, int, int]], unfinished: int | None) -> bool:
        """Write the trace."""
        with private_folder(folder) as temporary:
            trace = Path(temporary) / "trace.json.gz"
            if not self._activities.write(trace, steps):
                return False
            trace.replace(folder / f"{stem}.trace.json.gz")
        return True
