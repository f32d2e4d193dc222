"""Run folders that `collect` writes: the runs of their passes, and which are parts of one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from analyze.errors import InputError
from analyze.ingestion.archives import Unpacked
from analyze.ingestion.grouping import shifts
from analyze.ingestion.ranks_in_names import name_rank
from analyze.ingestion.raw_files import export_of
from analyze.sources import BY_KIND, rank_hint
from analyze.sources.interface import SourceFile
from analyze.sources.rank_hint import Looked
from analyze.sources.remote import RawPath, RemotePath, common_folder, fetched
from analyze.store.file_digest import Digests, printable
from schemas.files import is_file
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestError, Pass, RunFile, read_manifest
from schemas.option_declaration import LARGEST_INT32
from schemas.workload import column_values

TRACE = ".trace.json.gz"
"""How the trace of a rank, or of a process, ends."""
_FULL_BLOCK = "torch"
"""The profiler of the full block of a program whose GPU-only block was recorded, too."""


@dataclass
class RunInput:
    """A run to ingest: its id, columns of `runs` that are known beforehand, and its raw files."""

    run_id: str
    files: list[SourceFile]
    columns: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    manifests: list[RawPath] = field(default_factory=list)
    """run.json of its run folder, or of each part of a job."""
    digests: Digests = field(default_factory=Digests)
    """Digests of files that were computed so far."""
    named: frozenset[RawPath] = frozenset()
    """Files that the user named. A damaged file found in a folder is left out with a warning instead of an error."""
    looked: dict[RawPath, Looked] = field(default_factory=dict)
    """Formats and hints of files outside run folders."""
    hosts: dict[int, str] = field(default_factory=dict)
    """Hosts of its ranks that are known beforehand."""
    part: str | None = None
    """The id of a run folder that is one node's part of a job."""
    full: str | None = None
    """The run of the full block, if this one is the GPU-only block of the same program."""
    unpacked: Unpacked | None = None
    """The archives that its files may be from."""

    def shown(self, text: str) -> str:
        """Return a text with the names of archives instead of their temporary folders."""
        return self.unpacked.named(text) if self.unpacked else text


def run_folder(folder: RawPath) -> list[RunInput]:
    """Return a run for each pass of a run folder. Raises InputError for a run.json that cannot be used."""
    manifest = _manifest(folder)
    return [_run_of_pass(folder, manifest, p) for p in manifest.passes]


def by_store(paths: Sequence[RawPath]) -> list[list[RawPath]]:
    """Group raw paths by the cached store that they are read into.

    Each run folder, or its run.json, has a store of its own. All others, and several run folders of nodes of a job, are
    in one: only together do they show which are one run. Raises InputError for a run.json that cannot be used.
    """
    at = {path: path.parent if path.name == MANIFEST_NAME else path for path in paths}
    folders = {path: f for path, f in at.items() if f.is_dir() and (f / MANIFEST_NAME).is_file()}
    alone = [path for path, f in folders.items() if len(folders) == 1 or _manifest(f).job is None]
    together = [path for path in paths if path not in alone]
    return [*([path] for path in alone), *([together] if together else [])]


def _manifest(folder: RawPath) -> Manifest:
    path = folder / MANIFEST_NAME
    with fetched(path) if isinstance(path, RemotePath) else nullcontext(path) as here:
        try:
            return read_manifest(here.parent)
        except ManifestError as e:
            raise InputError(str(e)) from e


def _run_of_pass(folder: RawPath, manifest: Manifest, one: Pass) -> RunInput:
    files, warnings = [], []
    listed = one.files
    if one.status == "running" and not listed:
        listed = _written_so_far(folder, one.profiler)
        read = f"reading {len(listed)} finished trace{'' if len(listed) == 1 else 's'} in {one.profiler}/"
        warnings.append(f"status running: `collect` still records, or was killed; {read}")
    if error := one.options.get("import_error"):  # exports of Nsight Systems have it since 2024 only
        warnings.append(f"{MANIFEST_NAME}: Nsight Systems lost events when it imported its recording: {error}")
    for f in listed:
        if f.kind not in BY_KIND:
            continue
        path = folder / f.path
        try:
            there = _is_file(path)
            if not there and (there := _is_file(compressed := path.with_name(f"{path.name}.gz"))):
                path = compressed
            inside = isinstance(path, RemotePath) or path.resolve().is_relative_to(str(folder.resolve()))
        except OSError as e:  # a name that is too long, a folder that one may not enter
            raise InputError(f"{folder / MANIFEST_NAME}: {printable(path)}: {e.strerror}") from e
        if not inside:
            raise InputError(f"{folder / MANIFEST_NAME}: {f.path!r} is a link out of the run folder")
        rank = f.rank if f.rank is not None else _rank_in_folder(path, f.kind)
        if export := export_of(BY_KIND[f.kind], path, rank):
            files.append(export)
        elif there:
            files.append(SourceFile(path, f.kind, rank))
        else:
            warnings.append(f"{f.path}: named in {MANIFEST_NAME} but missing")
    files = list(dict.fromkeys(files))  # a report and its export are one file
    if manifest.job and (ranks := [r.rank for r in one.ranks]):
        # The report of one of several nodes numbers its processes from 0.
        first = min(ranks)
        files = [replace(f, rank=first, first_rank=first) if _is_nsys(f) else f for f in files]
    by_rank: dict[tuple[str, int], RawPath] = {}
    for file in files:
        if by_rank.setdefault((file.kind, file.rank), file.path) != file.path and file.kind == "chrome_trace":
            other = by_rank[file.kind, file.rank].name
            raise InputError(f"{folder / MANIFEST_NAME}: {other} and {file.path.name} both have rank {file.rank}")
    name = manifest.job or manifest.run_id
    profilers = [p.profiler for p in manifest.passes]
    return RunInput(
        run_id=f"{name}.{one.profiler}" if len(profilers) > 1 else name,
        files=files,
        columns=_manifest_columns(manifest, one) | {"source": printable(folder)},
        warnings=warnings,
        manifests=[folder / MANIFEST_NAME],
        hosts=_hosts(manifest, one, {f.rank for f in files}),
        part=manifest.run_id if manifest.job else None,
        full=f"{name}.{_FULL_BLOCK}" if one.profiler == "gpu" and _FULL_BLOCK in profilers else None,
    )


def _written_so_far(folder: RawPath, profiler: str) -> list[RunFile]:
    """List the traces that a pass has written while its run.json does not name them: one for each rank.

    Each trace appears under its name once it is complete. Until the program ends it is named after its process.
    """
    try:
        entries: list[RawPath] = list((folder / profiler).iterdir())
    except OSError:
        return []
    found: dict[int, RunFile] = {}
    for path in sorted(entries, key=lambda p: p.name):
        if path.name.endswith(TRACE) and not path.name.startswith("."):
            rank = _rank_in_folder(path, "chrome_trace")
            found.setdefault(rank, RunFile(path=f"{profiler}/{path.name}", kind="chrome_trace", rank=rank))
    return list(found.values())


def _is_nsys(file: SourceFile) -> bool:
    return BY_KIND[file.kind].profiler == "nsys"


def _is_file(path: RawPath) -> bool:
    return path.is_file() if isinstance(path, RemotePath) else is_file(path)


def join_parts(runs: Iterable[RunInput]) -> list[RunInput]:
    """Join runs that are parts of one job (`collect run --job`); the joined run takes the first part's place.

    A column keeps its value if all parts agree. Of two parts with one id, a folder and its copy, the second is not
    joined. Raises InputError if two parts have the same rank.
    """
    joined: list[RunInput] = []
    jobs: dict[str, dict[str, RunInput]] = {}
    for run in runs:
        if run.part is None or run.part in jobs.get(run.run_id, ()):
            joined.append(run)
        else:
            parts = jobs.setdefault(run.run_id, {})
            if not parts:
                joined.append(run)
            parts[run.part] = run
    whole = {id(next(iter(parts.values()))): _joined(list(parts.values())) for parts in jobs.values()}
    return [whole.get(id(run), run) for run in joined]


def _joined(parts: list[RunInput]) -> RunInput:
    """Join parts of a job into one run, in the order of their ranks."""
    if len(parts) == 1:
        return parts[0]
    parts.sort(key=lambda p: (min((f.rank for f in p.files), default=LARGEST_INT32), p.part))
    owners: dict[int, RunInput] = {}
    for part in parts:
        for rank in sorted({f.rank for f in part.files if f.kind == "chrome_trace"}):
            if owners.setdefault(rank, part) is not part:
                raise InputError(f"{owners[rank].manifests[0]} and {part.manifests[0]}: both have rank {rank} of a job")
    reports = [f for p in parts for f in p.files if _is_nsys(f) and f.path.is_file()]
    clocks = [rank_hint(BY_KIND[f.kind], f.path).clock_ns for f in reports] if len(reports) > 1 else []
    later = dict(zip(reports, shifts(clocks), strict=True)) if clocks else {}
    columns = {name: _agreed(p.columns.get(name) for p in parts) for name in parts[0].columns}
    reasons = [f"{p.part}: {p.columns['reason']}" for p in parts if p.columns.get("reason")]
    statuses = {p.columns["status"] for p in parts}
    return RunInput(
        run_id=parts[0].run_id,
        files=[replace(f, shift_ns=later.get(f, 0)) for p in parts for f in p.files],
        columns=columns
        | {
            "command": parts[0].columns["command"],  # torchrun's has the node's number
            "start_time": min(p.columns["start_time"] for p in parts),
            "status": next((s for s in ("failed", "running") if s in statuses), "done"),
            "reason": "; ".join(reasons) or None,
            "source": printable(common_folder([p.manifests[0].parent for p in parts])),
        },
        warnings=[f"{p.part}: {w}" for p in parts for w in p.warnings],
        manifests=[m for p in parts for m in p.manifests],
        hosts={rank: host for p in parts for rank, host in p.hosts.items()},
        part=parts[0].part,
        full=parts[0].full,
    )


def _agreed(values: Iterable[Any]) -> Any:
    """Return the value that all non-NULL values equal; None if they differ."""
    found = [v for v in values if v is not None]
    return found[0] if found and all(v == found[0] for v in found) else None


def _hosts(manifest: Manifest, one: Pass, ranks: set[int]) -> dict[int, str]:
    """Return the host of each rank of a pass: its process's, else for the collector's own workers the collector's."""
    node = manifest.host if manifest.program is None else None
    return {r: node for r in ranks if node} | {r.rank: r.host for r in one.ranks if r.host}


def _rank_in_folder(path: RawPath, kind: str) -> int:
    """Return the rank of a file whose manifest does not say it: from the file, else its name, else 0."""
    rank = rank_hint(BY_KIND[kind], path).rank if path.is_file() else None
    return rank if rank is not None else name_rank(path.name) or 0


def _manifest_columns(manifest: Manifest, one: Pass) -> dict[str, Any]:
    gpu = manifest.gpu_devices[0] if manifest.gpu_devices else None
    workload = manifest.workload
    world_sizes = {"ddp": workload.gpus, "dp": 1, "none": 1}
    world_size, steps = world_sizes.get(workload.parallel or ""), workload.steps
    if manifest.program is not None:  # the user's own program: only counted facts are known
        world_size, steps = manifest.world_size, one.counted_steps
    return {
        "workload_id": manifest.job or manifest.run_id,
        "profiler": one.profiler,
        "status": one.status,
        "reason": one.reason or manifest.reason,
        "gpu_name": gpu.name if gpu else None,
        "compute_capability": (gpu.compute_capability or None) if gpu else None,
        "command": " ".join(manifest.command),
        "start_time": one.start or manifest.start,
        "world_size": world_size,
        **{
            name: getattr(manifest, name)
            for name in (
                "host", "driver_version", "cuda_version", "cudnn_version", "nccl_version", "torch_version",
                "git_commit",
            )
        },
        **column_values(workload),
        "steps": steps,
    }  # fmt: skip
