"""Takes a memory snapshot of the caching allocator: when memory runs out, else at the end of a recorded history."""

from __future__ import annotations

import contextlib
import pickle
import time
import traceback
from pathlib import Path
from typing import Any

from .module_names import ModuleNames
from .torch_internals import find
from .trace_files import private_folder

MAX_EVENTS = 200_000
"""Events of the history that torch keeps for each GPU; it drops the oldest."""
MAX_OOMS = 5
"""A program that catches the error may go on and run out of memory again; the last of this many snapshots stays."""


class MemorySnapshot:
    """The snapshot of a process."""

    def __init__(self, path: Path, on_oom: bool, history: bool) -> None:
        """Write `path` when memory runs out (`on_oom`), else at the end the `history` of allocations and frees.

        This process has initialised CUDA: a GPU has no allocator before.
        """
        self._path = path
        self._history = history
        self._ooms = 0
        observe = find("torch._C._cuda_attach_out_of_memory_observer")
        self._snapshot = find("torch.cuda.memory._snapshot")
        if on_oom and observe and self._snapshot:
            observe(self._ran_out)
        record = find("torch.cuda.memory._record_memory_history")
        if history and record:
            record(max_entries=MAX_EVENTS)
            if name := find("torch.cuda.memory._set_memory_metadata"):
                ModuleNames(name)

    @property
    def written(self) -> bool:
        """Whether there is a snapshot."""
        return self._path.exists()

    def _ran_out(self, device: int, requested: int, total: int, free: int) -> None:
        """Take a snapshot. torch calls this before it raises OutOfMemoryError."""
        self._ooms += 1
        if self._ooms > MAX_OOMS:
            return
        with contextlib.suppress(Exception):  # the program must see torch's error
            snapshot = self._snapshot()
            events = snapshot["device_traces"][device]
            if not events or events[-1]["action"] != "oom":
                # Without a history torch does not record it.
                events.append(
                    {
                        "action": "oom",
                        "device_free": free,
                        "size": requested,
                        "stream": 0,
                        "time_us": time.time_ns() // 1000,
                        "frames": [
                            {"name": f.name, "filename": f.filename, "line": f.lineno or 0}
                            for f in reversed(traceback.extract_stack()[:-1])
                        ],
                    }
                )
            self._write(snapshot)

    def end(self) -> None:
        """Write the history, unless memory ran out: then that moment is of interest."""
        if self._history and self._snapshot and not self.written:
            self._write(self._snapshot())

    def _write(self, snapshot: dict[str, Any]) -> None:
        """Write a snapshot with what torch has counted on each GPU so far. Raises OSError.

        The history has requested bytes. Peaks of allocated bytes cannot be computed from it, since it does not say how
        large the block of a freed request was.
        """
        import torch

        devices = range(len(snapshot["device_traces"]))
        snapshot["memory_stats"] = [dict(torch.cuda.memory_stats(device)) for device in devices]
        with private_folder(self._path.parent) as temporary:
            part = Path(temporary) / self._path.name
            with part.open("wb") as f:
                pickle.dump(snapshot, f, protocol=4)
            part.replace(self._path)
