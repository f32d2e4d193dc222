"""From the paths a user gives to runs: which raw files there are, which run and which rank each belongs to."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources import BY_KIND, SOURCES, Source, detect
from analyze.sources.base import SourceFile
from analyze.sources.chrome_metadata import read_metadata
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestError, Pass, read_manifest

_SUFFIXES = re.compile(r"(\.pt)?(\.trace)?\.json(\.gz)?$|\.(sqlite|nsys-rep|qdrep|ncu-rep|csv|log|txt)$", re.IGNORECASE)
_NOT_TRACES = {"sweep.json", "store.json"}
_RANK_PATTERNS = (
    re.compile(r"rank[-_.=\[ ]?(\d+)", re.IGNORECASE),
    re.compile(
        r"(?:^|[-_.])(?:r|gpu|worker|proc|process|device|dev|localrank)[-_.=\[]?(\d+)(?=[-_.\]]|$)", re.IGNORECASE
    ),
)
_DIGEST_BYTES = 64 << 10


@dataclass
class RunInput:
    """A run to ingest: its id, what is known of it beforehand (columns of `runs`), and its raw files."""

    run_id: str
    files: list[SourceFile]
    columns: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    manifest: Path | None = None
    """run.json, for a run folder."""


def discover(paths: Iterable[Path]) -> list[RunInput]:
    """Runs below the given files and folders, in a stable order.

    A folder with a run.json is a run folder. Chrome traces elsewhere that lie in one folder are the ranks of one run;
    any other bare file is a run of its own.
    Raises InputError for a path that does not exist or holds nothing to read.
    """
    runs: dict[str, RunInput] = {}
    for path in paths:
        found = list(_discover_one(path))
        if not found:
            raise InputError(f"{path}: no run folder and no file that a source reads found in it")
        for run in found:
            if run.run_id in runs and runs[run.run_id].files != run.files:
                raise InputError(f"{path}: run {run.run_id} was already found in {runs[run.run_id].columns['source']}")
            runs[run.run_id] = run
    return list(runs.values())


def _discover_one(path: Path) -> list[RunInput]:
    if path.is_file():
        if path.name == MANIFEST_NAME:
            return _run_folder(path.parent)
        source = detect(path)
        if source is None:
            raise InputError(
                f"{path}: not a file that any source reads ({', '.join(s.kind for s in SOURCES if s.name)})"
            )
        return [_bare_run(source, path, [path])]
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder")
    runs: list[RunInput] = []
    pending = [path]
    while pending:
        folder = pending.pop()
        if (folder / MANIFEST_NAME).is_file():
            runs += _run_folder(folder)
            continue
        entries = sorted(folder.iterdir(), key=lambda p: _natural(p.name))
        by_source: dict[Source, list[Path]] = {}
        for entry in entries:
            if entry.is_file() and not entry.name.startswith(".") and entry.name not in _NOT_TRACES:
                source = detect(entry)
                if source and not _export_of(source, entry):
                    by_source.setdefault(source, []).append(entry)
        for source, files in by_source.items():
            if source.kind == "chrome_trace":
                runs += _bare_folder(source, folder, files)
            else:
                runs += [_bare_run(source, file, [file]) for file in files]
        pending += [p for p in reversed(entries) if p.is_dir() and not p.name.startswith(".")]
    return runs


def _export_of(source: Source, path: Path, rank: int = 0) -> SourceFile | None:
    """The file beside a report that holds the same and is read instead, if there is one."""
    for suffix in source.exported:
        export = path.with_suffix(suffix)
        if export.is_file() and (found := detect(export)):
            return SourceFile(export, found.kind, rank)
    return None


def _run_folder(folder: Path) -> list[RunInput]:
    try:
        manifest = read_manifest(folder)
    except ManifestError as e:
        raise InputError(str(e)) from e
    several = len(manifest.passes) > 1
    return [_run_of_pass(folder, manifest, p, several) for p in manifest.passes]


def _run_of_pass(folder: Path, manifest: Manifest, one: Pass, several: bool) -> RunInput:
    files, warnings = [], []
    for f in one.files:
        if f.kind not in BY_KIND:
            continue
        path = folder / f.path
        if export := _export_of(BY_KIND[f.kind], path, f.rank or 0):
            files.append(export)
        elif path.is_file():
            files.append(SourceFile(path, f.kind, f.rank or 0))
        else:
            warnings.append(f"{f.path}: named in {MANIFEST_NAME} but missing")
    return RunInput(
        run_id=f"{manifest.run_id}.{one.profiler}" if several else manifest.run_id,
        files=list(dict.fromkeys(files)),  # a report and its export are one file
        columns=_manifest_columns(manifest, one) | {"source": str(folder)},
        warnings=warnings,
        manifest=folder / MANIFEST_NAME,
    )


def _manifest_columns(manifest: Manifest, one: Pass) -> dict[str, Any]:
    gpu = manifest.gpu_devices[0] if manifest.gpu_devices else None
    return {
        "workload_id": manifest.run_id,
        "profiler": one.profiler,
        "status": one.status,
        "reason": one.reason or manifest.reason,
        "compiled": manifest.compiled,
        "device_type": manifest.device,
        "gpu_name": gpu.name if gpu else None,
        "compute_capability": (gpu.compute_capability or None) if gpu else None,
        "command": " ".join(manifest.command),
        "start_time": one.start or manifest.start,
        "world_size": manifest.gpus if manifest.parallelism == "ddp" else 1,
    } | {
        name: getattr(manifest, name)
        for name in (
            "model", "batch_size", "gpus", "parallelism", "precision", "dataset", "image_size", "steps", "optimizer",
            "channels_last", "freeze_features", "workers", "seed", "host", "driver_version", "cuda_version",
            "cudnn_version", "nccl_version", "torch_version", "git_commit",
        )
    }  # fmt: skip


def _bare_folder(source: Source, folder: Path, traces: list[Path]) -> list[RunInput]:
    """Traces of one folder: the ranks of one run, unless two of them say that they are the same rank."""
    told: list[int | None] = []
    readable: list[Path] = []
    warnings: list[str] = []
    for path in traces:
        try:
            info = read_metadata(path).distributed
        except InputError as e:
            warnings.append(f"{e}; left out")
        else:
            readable.append(path)
            told.append(info.rank if info else None)
    if not readable:
        raise InputError("; ".join(w.removesuffix("; left out") for w in warnings))
    counts = Counter(r for r in told if r is not None)
    clash = next((r for r, n in counts.items() if n > 1), None)
    if clash is None:
        run = _bare_run(source, folder, readable, assign_ranks([p.name for p in readable], told))
        run.warnings += warnings
        return [run]
    runs = [_bare_run(source, path, [path], [rank or 0]) for path, rank in zip(readable, told, strict=True)]
    for run in runs:
        run.warnings.append(
            f"{folder}: {counts[clash]} traces say they are rank {clash}, so each file is a run of its own"
        )
    return runs


def _bare_run(source: Source, origin: Path, files: list[Path], ranks: list[int] | None = None) -> RunInput:
    """A run of bare files that came from `origin`: their folder, or the one file."""
    if ranks is None and source.kind == "chrome_trace":
        info = read_metadata(files[0]).distributed
        ranks = assign_ranks([files[0].name], [info.rank if info else None])
    ranks = ranks or [0] * len(files)
    origin = origin.parent if source.folder else origin
    stem = re.sub(_SUFFIXES, "", origin.name) if origin in files else origin.name
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "run"
    run_id = f"{slug}-{_digest(min(zip(ranks, files, strict=True))[1])}"
    return RunInput(
        run_id=run_id,
        files=[SourceFile(p, source.kind, r) for p, r in zip(files, ranks, strict=True)],
        columns={"workload_id": run_id, "profiler": source.profiler, "source": str(origin)},
    )


def _digest(path: Path) -> str:
    """Eight hex digits of a file's size and both ends: the same file is the same run, wherever it lies."""
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=4)
    with path.open("rb") as f:
        digest.update(f.read(_DIGEST_BYTES))
        f.seek(max(0, size - _DIGEST_BYTES))
        digest.update(f.read())
    return digest.hexdigest()


def assign_ranks(names: list[str], told: list[int | None]) -> list[int]:
    """Ranks of trace files: what the file says (`distributedInfo`), else what its name says, else the next one free.

    File names are in natural order. A name counts only if no other file has the same rank.
    """
    ranks = list(told)
    for find in (*(_by_pattern(p) for p in _RANK_PATTERNS), _only_difference(names)):
        guesses = [find(n) if r is None else None for n, r in zip(names, ranks, strict=True)]
        taken = Counter(r for r in (*ranks, *guesses) if r is not None)
        ranks = [
            r if r is not None else g if g is not None and taken[g] == 1 else None
            for r, g in zip(ranks, guesses, strict=True)
        ]
    free = (n for n in range(len(names) * 2) if n not in set(ranks))
    return [r if r is not None else next(free) for r in ranks]


def _by_pattern(pattern: re.Pattern[str]) -> Callable[[str], int | None]:
    def find(name: str) -> int | None:
        match = pattern.search(name)
        return int(match.group(1)) if match else None

    return find


def _only_difference(names: list[str]) -> Callable[[str], int | None]:
    """The one number in which the names differ, if they differ in nothing else and count like ranks."""
    split = [re.split(r"(\d+)", n) for n in names]
    if len(names) > 1 and len({len(s) for s in split}) == 1:
        varying = [i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1]
        if len(varying) == 1 and varying[0] % 2 == 1:
            numbers = {n: int(s[varying[0]]) for n, s in zip(names, split, strict=True)}
            if max(numbers.values()) <= 100_000:
                return numbers.get
    return lambda name: None


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]
