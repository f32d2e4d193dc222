"""Write Chrome traces by hand, and run folders that hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def event(
    cat: str, name: str, ts: float, dur: float, pid: int | str = 1, tid: int | str = 1, **args: Any
) -> dict[str, Any]:
    """A complete event (ph X); times in us."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, device: int = 0, stream: int = 7, **args: Any) -> dict[str, Any]:
    """A kernel; times in us."""
    return event("kernel", name, ts, dur, device, stream, device=device, stream=stream, **args)


def launch(ts: float, correlation: int, dur: float = 1, name: str = "cudaLaunchKernel", **args: Any) -> dict[str, Any]:
    """A launch call; times in us."""
    return event("cuda_runtime", name, ts, dur, correlation=correlation, **args)


def write_trace(path: Path, events: Sequence[dict[str, Any]], **header: Any) -> Path:
    """A Chrome trace of these events."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}))
    return path


def op(name: str, ts: float, dur: float, op_id: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    """An operator, which work names by its External id; times in us."""
    return event("cpu_op", name, ts, dur, tid=tid, **{"External id": op_id, **args})


def launched(ts: float, op_id: int, start: float, dur: float, name: str = "k") -> list[dict[str, Any]]:
    """A launch of 1 us in an operator, and the kernel that it starts; times in us."""
    own: dict[str, Any] = {"External id": op_id}
    correlation = op_id + 1_000_000  # another number, as since torch 2.3: see the table call_ops
    return [launch(ts, correlation, **own), kernel(name, start, dur, correlation=correlation, **own)]


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    """A step as torch.profiler marks it; times in us."""
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def write_ranks(
    folder: Path, *ranks: Sequence[dict[str, Any]], groups: Sequence[list[dict[str, Any]]] | None = None
) -> Path:
    """Traces of the ranks of a job, with the process groups that each lists; the folder."""
    for rank, events in enumerate(ranks):
        job: dict[str, Any] = {"rank": rank, "world_size": len(ranks)}
        job |= {"pg_config": groups[rank]} if groups else {}
        write_trace(folder / f"rank-{rank}.json", events, distributedInfo=job)
    return folder


def write_run(folder: Path, files: Sequence[tuple[str, str, int]], profiler: str = "torch", **fields: Any) -> Path:
    """The run.json of a run folder: one pass, which left files of these paths, kinds and ranks; the folder."""
    left = [{"path": path, "kind": kind, "rank": rank} for path, kind, rank in files]
    manifest = {
        "run_id": folder.name, "status": "done", "start": "2026-01-01T00:00:00+00:00", "command": ["collect"],
        "passes": [{"profiler": profiler, "status": "done", "files": left}],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(manifest | fields))
    return folder


def write_timed_run(
    path: Path,
    ranks: dict[int, list[dict[str, Any]]],
    times_ms: dict[int, list[tuple[bool, float]]],
    **header: Any,
) -> Path:
    """A run folder under torch.profiler; `times_ms`: of each rank (whether undisturbed, ms) of its timed steps."""
    (path / "torch").mkdir(parents=True)
    files = []
    for rank, events in ranks.items():
        about = {"rank": rank, "world_size": len(ranks)}
        write_trace(path / f"torch/rank-{rank}.trace.json", events, distributedInfo=about, **header)
        files.append((f"torch/rank-{rank}.trace.json", "chrome_trace", rank))
        if rank in times_ms:
            rows = [f"{rank},{n},{u},{u},{ms / 1e3}" for n, (u, ms) in enumerate(times_ms[rank])]
            lines = ["rank,step,warmup,undisturbed,step_s", *rows]
            (path / f"torch/rank-{rank}.step_metrics.csv").write_text("\n".join(lines) + "\n")
            files.append((f"torch/rank-{rank}.step_metrics.csv", "step_metrics", rank))
    return write_run(path, files, run_id="r", world_size=len(ranks))
