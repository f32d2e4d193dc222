"""Add a GPU-only block to a sample that has a full one: the same work, with shorter gaps."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_OF_CUPTI = (
    "device", "context", "stream", "correlation", "registers per thread", "shared memory", "grid", "block", "bytes",
    "memory bandwidth (GB/s)", "graph id", "graph node id",
)  # fmt: skip
"""Arguments of GPU work that CUPTI knows. All others are PyTorch's."""
EARLIER_US = 1_000_000.0
"""How much earlier the GPU-only block begins."""

Event = dict[str, Any]


def gpu_events(events: Sequence[Event], shorter: float = 1.0) -> list[Event]:
    """The GPU work and steps of a trace as a GPU-only block has them; its gaps are `shorter` times as long."""
    work = sorted((e for e in events if e.get("cat") in _WORK), key=lambda e: e["ts"])
    busy: list[list[float]] = []
    for e in work:
        end = e["ts"] + e["dur"]
        if busy and e["ts"] <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([e["ts"], end])

    def moved(ts: float) -> float:
        saved = 0.0
        for (_, end), (start, _) in pairwise(busy):
            saved += (1 - shorter) * max(0.0, min(ts, start) - end)
        return ts - saved - EARLIER_US

    steps = [e for e in events if e["name"].startswith("ProfilerStep#") and e.get("cat") == "user_annotation"]
    found = [e | {"ts": moved(e["ts"]), "args": {k: v for k, v in e["args"].items() if k in _OF_CUPTI}} for e in work]
    return found + [
        e | {"ts": moved(e["ts"]), "dur": moved(e["ts"] + e["dur"]) - moved(e["ts"]), "args": {}} for e in steps
    ]


def with_gpu_block(
    sample: Path,
    folder: Path,
    shorter: float = 1.0,
    change: Callable[[list[Event]], list[Event]] = lambda events: events,
) -> Path:
    """Copy a sample's run folder and add a GPU-only block of each rank. `change` edits its events."""
    shutil.copytree(sample, folder)
    manifest = json.loads((folder / "run.json").read_text())
    [full] = [p for p in manifest["passes"] if p["profiler"] == "torch"]
    files = []
    for file in [f for f in full["files"] if f["kind"] == "chrome_trace"]:
        path = folder / file["path"]
        trace = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        events = change(gpu_events([e for e in trace["traceEvents"] if "dur" in e], shorter))
        own = f"gpu/rank-{file.get('rank') or 0}.trace.json.gz"
        (folder / "gpu").mkdir(exist_ok=True)
        (folder / own).write_bytes(gzip.compress(json.dumps(trace | {"traceEvents": events}).encode()))
        files.append(file | {"path": own})
    manifest["passes"].insert(0, full | {"profiler": "gpu", "files": files})
    (folder / "run.json").write_text(json.dumps(manifest))
    return folder
