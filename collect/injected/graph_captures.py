"""Records what the CPU does while a CUDA graph is captured: operators, modules, ranges and launch calls.

A replay runs none of it. So the capture is the only place that says which module a kernel of a graph belongs to.
Replays cost nothing more, except in a full block, which gives each a range with the number of its graph.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .cuda import detaching_cupti, synchronize
from .graph_nodes import captured_nodes
from .profiler_start import start_profiler
from .torch_internals import find
from .trace_files import private_folder

SUFFIX = ".graphs.json.gz"
"""End of the name of the file with the captures of a process."""
MOST_SECONDS = 60
"""Time after which captures are not recorded any more: servers capture thousands of graphs."""
_CPU = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
"""Categories of the events that are kept; of Python functions only those of _is_program."""
_CALLS = ("Launch", "Memcpy", "Memset", "BeginCapture", "EndCapture")
"""What names of CUDA calls have that make nodes of a graph, or begin and end a capture."""


class GraphCaptures:
    """Records each capture, unless another recorder runs."""

    def __init__(
        self,
        folder: Path,
        ignore: Callable[[], AbstractContextManager[None]],
        is_recording: Callable[[], bool],
        is_finished: Callable[[], bool],
    ) -> None:
        """Patch torch's CUDAGraph. `folder`: for the traces of captures while they are read. `ignore`: our own
        profilers start inside it. `is_recording`: another one runs."""
        self._folder = folder
        self._ignore, self._is_recording, self._is_finished = ignore, is_recording, is_finished
        self._graphs: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        """Number of the graph of each CUDAGraph, by its id()."""
        self._header: dict[str, Any] = {}
        self._profile: Any = None
        self._begin_ns = 0
        self._spent_s = 0.0
        self._recorded_elsewhere: list[dict[str, Any]] = []
        """Graphs that were captured while another recorder ran, which has their events."""
        self._class = find("torch.cuda.CUDAGraph")
        self._unmarked: Any = None
        """Its method `replay`, while replays are marked."""
        if self._class is not None:
            self._patch()

    def _patch(self) -> None:
        begin, end = self._class.capture_begin, self._class.capture_end

        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            _quietly(self._before)
            self._begin_ns = time.time_ns()
            return begin(graph, *args, **kwargs)

        def capture_end(graph: Any) -> Any:
            nodes = _quietly(_nodes) or []
            try:
                return end(graph)
            finally:
                _quietly(lambda: self._after(graph, nodes))

        self._class.capture_begin, self._class.capture_end = capture_begin, capture_end

    def _before(self) -> None:
        """Start to record, before the capture: to start a profiler within it would break it."""
        from torch.profiler import profile

        self._profile = None
        if self._is_recording() or self._is_finished() or self._spent_s > MOST_SECONDS:
            return
        started = time.monotonic()
        synchronize()
        with self._ignore():
            self._profile = profile(record_shapes=True, with_stack=True)  # of the CPU and its GPUs
            start_profiler(self._profile)
        self._spent_s += time.monotonic() - started

    def _after(self, graph: Any, nodes: list[tuple[str, str | None]]) -> None:
        """Note a graph, and keep the events of its capture."""
        number = self._numbers[id(graph)] = len(self._graphs) + 1
        own = {"graph": number, "begin_ns": self._begin_ns, "end_ns": time.time_ns(), "nodes": nodes}
        self._graphs.append(own)
        profile, self._profile = self._profile, None
        if profile is None:
            self._recorded_elsewhere += [own] if self._is_recording() else []
            return
        started = time.monotonic()
        with detaching_cupti():
            profile.stop()
        self._add(profile, own)
        self._spent_s += time.monotonic() - started

    def keep(self, session: object) -> None:
        """Keep the captures of a recording that was stopped and is dropped: what the program did before its steps."""
        profile = getattr(session, "profile", None)
        if self._recorded_elsewhere and profile is not None:
            _quietly(lambda: self._add(profile, *self._recorded_elsewhere))
        self._recorded_elsewhere = []

    def _add(self, profile: Any, *graphs: dict[str, Any]) -> None:
        """Add the events of a stopped profiler in which these graphs were captured."""
        with private_folder(self._folder) as temporary:
            path = Path(temporary) / "trace.json"
            profile.export_chrome_trace(str(path))
            trace = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        base_ns = trace.get("baseTimeNanoseconds", 0)
        spans = [((g["begin_ns"] - base_ns) / 1000, (g["end_ns"] - base_ns) / 1000) for g in graphs]
        events = [
            event
            for event in trace.pop("traceEvents")
            if event.get("ph") == "X" and _is_kept(event) and any(a <= event["ts"] <= b for a, b in spans)
        ]
        self._header = self._header or trace
        later_us = (base_ns - self._header.get("baseTimeNanoseconds", 0)) / 1000
        self._events += [{**e, "ts": e["ts"] + later_us} for e in events] if later_us else events

    def mark_replays(self) -> None:
        """Give each replay a range with the number of its graph, until unmark_replays()."""
        if self._class is None or self._unmarked is not None:
            return
        from torch.autograd.profiler import record_function

        unmarked = self._unmarked = self._class.replay

        def replay(graph: Any) -> Any:
            with record_function(f"CUDAGraph.replay#{self._numbers.get(id(graph), 0)}"):
                return unmarked(graph)

        self._class.replay = replay

    def unmark_replays(self) -> None:
        """Let replays run as the program made them."""
        if self._unmarked is not None:
            self._class.replay, self._unmarked = self._unmarked, None

    def write(self, folder: Path, stem: str) -> None:
        """Write the captures of this process as a Chrome trace, if there are any. Raises OSError."""
        if not self._graphs:
            return
        trace = {**self._header, "cudaGraphs": self._graphs, "traceEvents": self._events}
        with private_folder(folder) as temporary:
            part = Path(temporary) / "graphs.json.gz"
            with gzip.open(part, "wt", compresslevel=6, encoding="utf-8") as out:
                json.dump(trace, out)
            part.replace(folder / f"{stem}{SUFFIX}")


def _nodes() -> list[tuple[str, str | None]]:
    import torch

    if torch.version.hip:
        return []  # ROCm's launch calls have the names of their kernels
    return captured_nodes(torch.cuda.current_stream().cuda_stream)


def _is_kept(event: dict[str, Any]) -> bool:
    category, name = event.get("cat"), str(event.get("name"))
    if category in ("cuda_runtime", "cuda_driver"):
        return any(part in name for part in _CALLS)
    return category in _CPU or (category == "python_function" and _is_program(name))


def _is_program(name: str) -> bool:
    """Whether a Python function is a module, or one of the program."""
    return name.startswith("nn.Module: ") or not (name.startswith("<built-in ") or "torch/" in name.split("(")[0])


def _quietly(action: Callable[[], Any]) -> Any:
    """Return what an action returns; None if it fails: the program must capture as if it were not recorded."""
    try:
        return action()
    except Exception:
        return None
