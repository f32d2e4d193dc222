"""From the paths a user gives to runs: which raw files there are, and which run and which rank each belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from analyze.errors import InputError
from analyze.sources import SOURCES, detect
from analyze.sources.base import SourceFile
from analyze.store.file_digest import Digests, FileState, printable
from analyze.store.grouping import BareFile, FileSet, as_one_run, group, named_like_ranks
from analyze.store.raw_files import export_of, told
from analyze.store.run_folders import RunInput, join_parts, run_folder
from schemas.manifest import MANIFEST_NAME
from schemas.urls import is_remote

_SUFFIXES = re.compile(
    r"(?:(\.pt)?(\.trace)?\.json|\.(sqlite|nsys-rep|qdrep|ncu-rep|csv|log|txt))(\.gz)?$", re.IGNORECASE
)
_NOT_TRACES = {"sweep.json", "store.json"}
_SLUG_LENGTH = 80
_NAMED_LINKS = 3


class Found(list[RunInput]):
    """The runs that were found, and in `warnings` what was left out on the way, one sentence each."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []


def discover(paths: Iterable[Path], known: Mapping[FileState, str] | None = None, as_one: bool = False) -> Found:
    """Runs in the given files and folders, in a stable order.

    A folder with a run.json is a run folder, and those of one job on several nodes are one run. Bare files are one run
    only if they say so (module `grouping`), or with `as_one`, by which the user says so; any other is a run of its own.
    Links below a folder are not followed.
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
            found += run_folder(folder)
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
    found[:] = join_parts(found)
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
            below.files.append(BareFile(path, source, told(source, path), given=True))
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
            if source and not export_of(source, path):
                below.files.append(BareFile(path, source, told(source, path), given=False))
        except InputError as e:
            below.warnings.append(f"{e}; left out")
    pending += [
        folder / e.name for e in reversed(found) if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
    ]


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
