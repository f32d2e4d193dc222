"""From the paths a user gives to runs: which raw files there are, and which run and which rank each belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources import BY_KIND, SOURCES, Source, detect
from analyze.sources.base import SourceFile
from analyze.sources.packed import plain_name, unpacked
from analyze.store.file_digest import Digests, FileState, printable
from analyze.store.grouping import BareFile, FileSet, Told, as_one_run, group, name_rank, named_like_ranks
from analyze.store.urls import is_remote
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestError, Pass, read_manifest
from schemas.options import LARGEST_INT32
from schemas.workload import column_values

_SUFFIXES = re.compile(
    r"(?:(\.pt)?(\.trace)?\.json|\.(sqlite|nsys-rep|qdrep|ncu-rep|csv|log|txt))(\.gz)?$", re.IGNORECASE
)
_NOT_TRACES = {"sweep.json", "store.json"}
_SLUG_LENGTH = 80
_NAMED_LINKS = 3


@dataclass
class RunInput:
    """A run to ingest: its id, what is known of it beforehand (columns of `runs`), and its raw files."""

    run_id: str
    files: list[SourceFile]
    columns: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    manifest: Path | None = None
    """run.json, for a run folder."""
    digests: Digests = field(default_factory=Digests)
    """Of the files, as far as they were needed."""
    named: frozenset[Path] = frozenset()
    """The files that the user named. Another one, found in a folder, is left out with a warning if it is damaged."""
    hosts: dict[int, str] = field(default_factory=dict)
    """Hosts of its ranks, as far as they are known beforehand."""


class Found(list[RunInput]):
    """The runs that were found, and in `warnings` what was left out on the way, one sentence each."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []


def discover(paths: Iterable[Path], known: Mapping[FileState, str] | None = None, as_one: bool = False) -> Found:
    """Runs in the given files and folders, in a stable order.

    A folder with a run.json is a run folder. Bare files are one run only if they say so (module `grouping`), or with
    `as_one`, by which the user says so; any other is a run of its own. Links below a folder are not followed.
    `known`: digests of files from before. Raises InputError for a path that does not exist or holds nothing to read.
    """
    found = Found()
    digests = Digests(known)
    folders: dict[Path, Path] = {}
    bare: dict[Path, BareFile] = {}
    given = list(paths)
    for path in given:
        below = _look(path)
        found.warnings += below.warnings
        if not below.folders and not below.files:
            raise InputError(
                "; ".join(w.removesuffix("; left out") for w in below.warnings[:3])
                or f"{path}: no run folder and no file that a source reads found in it"
            )
        for folder in below.folders:
            folders.setdefault(folder.resolve(), folder)
        for file in below.files:
            bare.setdefault(file.path.resolve(), file)
    broken: list[str] = []
    for folder in folders.values():
        try:
            found += _run_folder(folder)
        except InputError as e:
            if folder in given or folder / MANIFEST_NAME in given:
                raise
            broken.append(str(e))
    files = list(bare.values())
    if as_one:
        sets = as_one_run(files)
    else:
        sets = group(_without_copies(files, digests, found.warnings))
        found.warnings += named_like_ranks(sets)
    found += [_bare_run(one, digests) for one in sets]
    if broken and not found:
        raise InputError("; ".join(broken[:3]))
    found.warnings += [f"{problem}; left out" for problem in broken]
    _drop_second(found)
    return found


@dataclass
class _Below:
    """What lies below a path."""

    folders: list[Path] = field(default_factory=list)
    """Run folders."""
    files: list[BareFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _look(path: Path) -> _Below:
    """What a given path holds. Raises InputError if it does not exist, or is a file that no source reads."""
    below = _Below()
    try:
        if path.is_file():
            if path.name == MANIFEST_NAME:
                below.folders.append(path.parent)
                return below
            source = detect(path)
            if source is None:
                kinds = ", ".join(s.kind for s in SOURCES if s.name)
                raise InputError(f"{path}: not a file that any source reads ({kinds})")
            below.files.append(BareFile(path, source, _told(source, path), given=True))
            return below
        if is_remote(path):
            raise InputError(f"{path}: raw files are read from folders: mount the storage, or copy them")
        if not path.is_dir():
            raise InputError(f"{path}: {'not a file or folder' if path.exists() else 'no such file or folder'}")
    except (OSError, ValueError) as e:
        raise InputError(f"{printable(path)!r}: cannot be read: {getattr(e, 'strerror', None) or e}") from e
    links: list[str] = []
    pending = [path]
    while pending:
        _look_into(pending.pop(), below, pending, links)
    if links:
        named = ", ".join(links[:_NAMED_LINKS]) + (", ..." if len(links) > _NAMED_LINKS else "")
        many = "links are" if len(links) > 1 else "link is"
        below.warnings.append(f"{path}: {len(links)} symbolic {many} not followed: {named}")
    return below


def _look_into(folder: Path, below: _Below, pending: list[Path], links: list[str]) -> None:
    """Add what one folder holds; folders in it go to `pending`."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda e: _natural(e.name))
    except OSError as e:
        below.warnings.append(f"{folder}: cannot be read: {e.strerror}; left out")
        return
    links += [printable(folder / e.name) for e in found if e.is_symlink() and not e.name.startswith(".")]
    plain = [e for e in found if e.is_file(follow_symlinks=False)]
    if any(e.name == MANIFEST_NAME for e in plain):
        below.folders.append(folder)
        return
    for entry in plain:
        if entry.name.startswith(".") or entry.name in _NOT_TRACES:
            continue
        path = folder / entry.name
        try:
            source = detect(path)
            if source and not _export_of(source, path):
                below.files.append(BareFile(path, source, _told(source, path), given=False))
        except InputError as e:
            below.warnings.append(f"{e}; left out")
    pending += [
        folder / e.name for e in reversed(found) if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
    ]


def _told(source: Source, path: Path) -> Told:
    """What a bare file says of its rank and its job. Raises InputError if it is no trace by its beginning."""
    rank = world_size = job = None
    if source.kind == "chrome_trace":
        from analyze.sources.chrome.metadata import read_metadata

        info = read_metadata(path).distributed
        if info:
            rank, world_size = info.rank, info.world_size
    elif source.kind in ("nsys_sqlite", "nsys_tables"):
        from analyze.sources.nsys.reader import read_job

        with unpacked(path, []) as plain:
            rank, world_size, job = read_job(plain)
    if world_size is not None and not 0 < world_size <= LARGEST_INT32:
        world_size = None
    if rank is not None and not 0 <= rank < (world_size or LARGEST_INT32):
        rank = world_size = None  # one of them is wrong
    return Told(rank, world_size, job)


def _export_of(source: Source, path: Path, rank: int = 0) -> SourceFile | None:
    """The file beside a report that holds the same and is read instead, if there is one."""
    report = path.with_name(plain_name(path))
    for suffix in source.exported:
        for export in (report.with_suffix(suffix), report.with_suffix(f"{suffix}.gz")):
            if export.is_file() and not export.is_symlink() and (found := detect(export)):
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
        try:
            if not path.is_file() and (packed := path.with_name(f"{path.name}.gz")).is_file():
                path = packed
            inside = path.resolve().is_relative_to(folder.resolve())
            there = path.is_file()
        except OSError as e:  # a name that is too long
            raise InputError(f"{folder / MANIFEST_NAME}: {printable(path)}: {e.strerror}") from e
        if not inside:
            raise InputError(f"{folder / MANIFEST_NAME}: {f.path!r} is a link out of the run folder")
        rank = f.rank if f.rank is not None else _rank_in_folder(path, f.kind)
        if export := _export_of(BY_KIND[f.kind], path, rank):
            files.append(export)
        elif there:
            files.append(SourceFile(path, f.kind, rank))
        else:
            warnings.append(f"{f.path}: named in {MANIFEST_NAME} but missing")
    files = list(dict.fromkeys(files))  # a report and its export are one file
    by_rank: dict[tuple[str, int], Path] = {}
    for file in files:
        if by_rank.setdefault((file.kind, file.rank), file.path) != file.path and file.kind == "chrome_trace":
            other = by_rank[file.kind, file.rank].name
            raise InputError(f"{folder / MANIFEST_NAME}: {other} and {file.path.name} are both of rank {file.rank}")
    return RunInput(
        run_id=f"{manifest.run_id}.{one.profiler}" if several else manifest.run_id,
        files=files,
        columns=_manifest_columns(manifest, one) | {"source": printable(folder)},
        warnings=warnings,
        manifest=folder / MANIFEST_NAME,
        hosts=_hosts(manifest, one, {f.rank for f in files}),
    )


def _hosts(manifest: Manifest, one: Pass, ranks: set[int]) -> dict[int, str]:
    """Where the ranks of a pass ran: what their processes said; the collector's own workers run on its node."""
    node = manifest.host if manifest.program is None else None
    return {r: node for r in ranks if node} | {r.rank: r.host for r in one.ranks if r.host}


def _rank_in_folder(path: Path, kind: str) -> int:
    """Rank of a run folder's file whose manifest does not say it: by the file, else by its name, else 0."""
    told = _told(BY_KIND[kind], path).rank if path.is_file() else None
    return told if told is not None else name_rank(path.name) or 0


def _manifest_columns(manifest: Manifest, one: Pass) -> dict[str, Any]:
    gpu = manifest.gpu_devices[0] if manifest.gpu_devices else None
    workload = manifest.workload
    world_sizes = {"ddp": workload.gpus, "dp": 1, "none": 1}
    world_size, steps = world_sizes.get(workload.parallel or ""), workload.steps
    if manifest.program is not None:  # the user's own: of it only what was counted is known
        world_size, steps = manifest.world_size, one.counted_steps
    return {
        "workload_id": manifest.run_id,
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


def _without_copies(files: list[BareFile], digests: Digests, warnings: list[str]) -> list[BareFile]:
    """The files without those that are copies of another, byte for byte."""
    sizes: dict[int, list[BareFile]] = {}
    for file in files:
        sizes.setdefault(file.path.stat().st_size, []).append(file)
    copies: set[Path] = set()
    for same_size in sizes.values():
        if len(same_size) > 1:
            first: dict[tuple[str, str], Path] = {}
            for file in same_size:
                # The file that stands for a folder (nsys's parquetdir) may be alike in many of them.
                own = str(file.path.parent) if file.source.folder else ""
                original = first.setdefault((digests.of(file.path), own), file.path)
                if original != file.path:
                    copies.add(file.path)
                    warnings.append(f"{file.path}: a copy of {original}; left out")
    return [f for f in files if f.path not in copies]


def _bare_run(one: FileSet, digests: Digests) -> RunInput:
    """A run of bare files; its id is a name and the digest of the file of the lowest rank."""
    first = one.files[0][1]
    if len(one.files) > 1:
        origin = Path(os.path.commonpath([str(f.path.parent.absolute()) for _, f in one.files]))
        if origin == first.path.parent.absolute():
            origin = first.path.parent
        name = origin.absolute().name
    else:
        origin = first.path.parent if first.source.folder else first.path
        name = origin.absolute().name if first.source.folder else re.sub(_SUFFIXES, "", origin.name)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_SLUG_LENGTH] or "run"
    run_id = f"{slug}-{digests.of(first.path)[:12]}"
    return RunInput(
        run_id=run_id,
        files=[SourceFile(f.path, f.source.kind, rank) for rank, f in one.files],
        columns={
            "workload_id": run_id,
            "profiler": first.source.profiler,
            "source": printable(origin),
            "world_size": one.world_size,
        },
        warnings=one.warnings,
        digests=digests,
        named=frozenset(f.path for _, f in one.files if f.given),
    )


def _drop_second(found: Found) -> None:
    """Of runs with one id (a run folder and its copy) only the first is read."""
    runs: dict[str, RunInput] = {}
    for run in found:
        if (first := runs.setdefault(run.run_id, run)) is not run:
            found.warnings.append(
                f"{run.columns['source']}: run {run.run_id} was already found in {first.columns['source']}; left out"
            )
    found[:] = runs.values()


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in re.split(r"([0-9]{1,18})", name)]
