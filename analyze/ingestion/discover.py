"""Find the raw files below paths and URLs, and the run and rank of each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import TypeVar

from analyze.errors import InputError, StorageError, unreadable
from analyze.ingestion.archives import Unpacked, first_named, is_archive
from analyze.ingestion.graph_captures import CAPTURES, FOLDER
from analyze.ingestion.grouping import BareFile, FileSet, as_one_run, group, named_like_ranks
from analyze.ingestion.raw_files import export_of
from analyze.ingestion.run_folders import RunInput, join_parts, run_folder
from analyze.sources import BY_KIND, SOURCES, Source, detect, rank_hint
from analyze.sources.compressed import plain_name
from analyze.sources.interface import SourceFile
from analyze.sources.rank_hint import Looked
from analyze.sources.remote import RawPath, RemotePath, common_folder
from analyze.sources.unread import what_instead
from analyze.store.catalogue import StoredFile
from analyze.store.file_digest import Digests, FileState, file_state, printable
from analyze.store.store import SHARDS, Store
from schemas.manifest import MANIFEST_NAME

_SUFFIXES = re.compile(
    r"(?:(\.pt)?(\.trace)?\.json|\.(chrome_trace|sqlite|nsys-rep|qdrep|ncu-rep|csv|log|txt|pickle|pkl))(\.gz)?$",
    re.IGNORECASE,
)
_NOT_TRACES = re.compile(r"\..*|sweep\.json|store\.json")
_CATALOGUE = re.compile(r".*/catalogue/[0-9]{8}\.json")
"""The catalogue of a store at a URL."""
_ARCHIVES = {".zip", ".tar", ".tgz", ".tzst", ".7z", ".rar", ".zst", ".xz", ".bz2"}
_JAX_COPY = "perfetto_trace.json.gz"
"""jax.profiler.trace(..., create_perfetto_trace=True) writes the events of HOST.trace.json.gz again."""
_SLUG_LENGTH = 80
_MD5 = re.compile(r"[0-9a-f]{32}")
_AT_ONCE = 8
"""Files at URLs that are read at the same time: latency dominates."""

T = TypeVar("T")
R = TypeVar("R")


class Found(list[RunInput]):
    """The runs that were found; `warnings` has a sentence for each file that was left out."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self.unpacked = Unpacked()
        """The contents of archives; ingest them before this object ends."""


def discover(
    paths: Iterable[RawPath], known: Mapping[FileState, StoredFile] | None = None, as_one: bool = False
) -> Found:
    """Return the runs in files and folders (`given_paths`), in a stable order.

    An archive (.zip, .tar, .tar.gz, .tar.zst, .zst) is read as the folder that it contains. A folder with a run.json is
    a run folder, and those of one job on several nodes are one run. Bare files are one run
    only if they say so (see `grouping`) or the user does (`as_one`); any other file is a run of its own.
    Links below a folder are not followed.
    `known`: files whose hints are known; they are not read again. Raises InputError for a path that does not
    exist or holds nothing to read, StorageError for what the storage behind a URL refuses.
    """
    found = Found()
    given = [found.unpacked.folder(p) if is_archive(p) and p.is_file() else p for p in paths]
    with found.unpacked.naming():
        _discover(given, known or {}, as_one, found)
    found.warnings[:] = [*found.unpacked.warnings, *map(found.unpacked.named, found.warnings)]
    for run in found:
        run.unpacked = found.unpacked or None
        run.columns["source"] = run.shown(run.columns["source"])
        run.warnings = list(map(run.shown, run.warnings))
    return found


def _discover(given: list[RawPath], known: Mapping[FileState, StoredFile], as_one: bool, found: Found) -> None:
    digests = Digests({state: file.digest for state, file in known.items() if file.digest})
    looked = {state: file.looked for state, file in known.items() if file.looked}
    folders: dict[RawPath, RawPath] = {}
    bare: dict[RawPath, BareFile] = {}
    for path in given:
        below = _look(path, looked)
        found.warnings += below.warnings
        if not below.folders and not below.files:
            raise InputError(
                "; ".join(w.removesuffix("; left out") for w in below.warnings[:3])
                or f"{path}: contains no run folder and no file that a source reads"
            )
        for folder in below.folders:
            folders.setdefault(folder.resolve(), folder)
        for file in below.files:
            bare.setdefault(file.path.resolve(), file)
    broken: list[str] = []
    for folder, runs in zip(folders.values(), _each(_run_folder, list(folders.values())), strict=True):
        if isinstance(runs, list):
            found += runs
        elif folder in given or folder / MANIFEST_NAME in given:
            raise runs
        else:
            broken.append(str(runs))
    files = list(bare.values())
    if as_one:
        sets = as_one_run(files)
    else:
        sets = group(_without_copies(files, digests, found.warnings))
        found.warnings += named_like_ranks(sets)
    found[:] = join_parts(found)
    _each(digests.of, [one.files[0][1].path for one in sets])  # their ids need them: several are fetched at a time
    found += [_bare_run(one, digests) for one in sets]
    if broken and not found:
        raise InputError("; ".join(broken[:3]))
    found.warnings += [f"{problem}; left out" for problem in broken]
    _drop_second(found)
    for copies in {path.copies for path in given if isinstance(path, RemotePath)}:
        copies.drop_others(file.path for run in found for file in run.files)


def check_place(store: Store) -> None:
    """Raise InputError for a new store in a folder of recordings: queries of the folder would read the store alone."""
    if store.filesystem or store.exists() or not store.folder.is_dir() or (store.folder / SHARDS).exists():
        return
    try:
        below = _look(store.folder, {})
    except InputError:
        return
    if found := [*below.folders, *(file.path for file in below.files)]:
        raise InputError(
            f"--store {store}: the folder has recordings ({found[0]}), which its queries would not read once it is a "
            "store; name another folder"
        )


@dataclass
class _Below:
    """What lies below a path."""

    folders: list[RawPath] = field(default_factory=list)
    """Run folders."""
    files: list[BareFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _look(path: RawPath, looked: Mapping[FileState, Looked]) -> _Below:
    """What a given path holds. Raises InputError if it does not exist, or is a file that no source reads."""
    below = _Below()
    try:
        if path.is_file():
            if path.name == MANIFEST_NAME:
                below.folders.append(path.parent)
                return below
            if (file := _bare_file(path, looked, given=True)) is None:
                if _is_archive(path):
                    raise InputError(f"{path}: an archive: unpack it first, and give the folder")
                if sentence := what_instead(path.name):
                    raise InputError(f"{path}: {sentence}")
                kinds = ", ".join(s.kind for s in SOURCES if s.name)
                raise InputError(f"{path}: unknown format; known formats: {kinds}")
            below.files.append(file)
            return below
        if not path.is_dir():
            raise InputError(f"{path}: {'not a file or folder' if path.exists() else 'no such file or folder'}")
    except (OSError, ValueError) as e:
        raise unreadable(printable(path), e) from e
    links: list[str] = []
    seen: list[RawPath | InputError] = []
    pending = [path]
    while pending:
        _look_into(pending.pop(), below, seen, pending, links)
    archives: list[str] = []
    for entry, found in zip(seen, _each(partial(_bare_or_why, looked=looked), seen), strict=True):
        if isinstance(found, BareFile):
            below.files.append(found)
        elif found:
            below.warnings.append(f"{found}; left out")
        elif not isinstance(entry, InputError) and _is_archive(entry):
            archives.append(printable(entry))
    if archives:
        many = "archives are" if len(archives) > 1 else "archive is"
        below.warnings.append(f"{path}: {len(archives)} {many} not read, name or unpack them: {first_named(archives)}")
    if links:
        many = "links are" if len(links) > 1 else "link is"
        below.warnings.append(f"{path}: {len(links)} symbolic {many} not followed: {first_named(links)}")
    return below


def _is_archive(path: RawPath) -> bool:
    """Whether a file is an archive, or compressed in another way than gzip, by its name."""
    return PurePath(plain_name(path)).suffix.lower() in _ARCHIVES


def _look_into(
    folder: RawPath, below: _Below, seen: list[RawPath | InputError], pending: list[RawPath], links: list[str]
) -> None:
    """Add what one folder holds; its files go to `seen`, with why it cannot be read, and folders in it to `pending`."""
    try:
        entries: list[os.DirEntry[str] | RemotePath]
        entries = list(folder.iterdir() if isinstance(folder, RemotePath) else os.scandir(folder))
        found = sorted(entries, key=lambda e: _natural(e.name))
    except OSError as e:
        seen.append(InputError(f"{folder}: cannot be read: {e.strerror}"))
        return
    links += [printable(folder / e.name) for e in found if e.is_symlink() and not e.name.startswith(".")]
    plain = [e for e in found if e.is_file(follow_symlinks=False)]
    if any(e.name == MANIFEST_NAME for e in plain):
        below.folders.append(folder)
        return
    # Captures belong to the trace beside them.
    if any(e.name == _JAX_COPY for e in plain) and any(e.name.endswith(".trace.json.gz") for e in plain):
        below.warnings.append(f"{folder / _JAX_COPY}: JAX's copy of the trace next to it; left out")
        plain = [e for e in plain if e.name != _JAX_COPY]
    files = [folder / e.name for e in plain if not _NOT_TRACES.fullmatch(e.name) and not e.name.endswith(CAPTURES)]
    seen += [f for f in files if not (isinstance(f, RemotePath) and _CATALOGUE.fullmatch(str(f)))]
    pending += [
        folder / e.name
        for e in reversed(found)
        if e.is_dir(follow_symlinks=False) and not e.name.startswith(".") and not (e.name == FOLDER and files)
    ]


def _bare_file(path: RawPath, looked: Mapping[FileState, Looked], given: bool) -> BareFile | None:
    """A file, or None if no source reads it, or instead of one below a folder its export. Raises InputError."""
    before = looked.get(file_state(path)) if looked else None
    if before and before.kind in BY_KIND:
        source: Source | None = BY_KIND[before.kind]
    else:
        source, before = detect(path), None
    if source is None or (not given and export_of(source, path)):
        return None
    return BareFile(path, source, before.hint if before else rank_hint(source, path), given)


def _bare_or_why(path: RawPath | InputError, looked: Mapping[FileState, Looked]) -> BareFile | InputError | None:
    """Return `_bare_file` of a file below a folder, or the reason why it cannot be read. Raises StorageError."""
    if isinstance(path, InputError):
        return path
    try:
        return _bare_file(path, looked, given=False)
    except StorageError:
        raise
    except InputError as e:
        return e


def _run_folder(folder: RawPath) -> list[RunInput] | InputError:
    """Return the runs of a run folder, or the reason why it has none. Raises StorageError."""
    try:
        return run_folder(folder)
    except StorageError:
        raise
    except InputError as e:
        return e


def _each(function: Callable[[T], R], arguments: list[T]) -> list[R]:
    """Return the results for all arguments, concurrently where storage is remote."""
    if not any(isinstance(a, RemotePath) for a in arguments):
        return list(map(function, arguments))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, arguments))


def _without_copies(files: list[BareFile], digests: Digests, warnings: list[str]) -> list[BareFile]:
    """Return the files without byte-identical copies."""
    sizes: dict[int, list[BareFile]] = {}
    for file in files:
        sizes.setdefault(file_state(file.path).bytes, []).append(file)
    copies: set[RawPath] = set()
    for same_size in sizes.values():
        if len(same_size) > 1 and not _differ(same_size):
            first: dict[tuple[str, str], RawPath] = {}
            for file in same_size:
                # META_DATA_EXPORT of nsys's parquetdir may be identical in several exports.
                own = str(file.path.parent) if file.source.folder else ""
                original = first.setdefault((digests.of(file.path), own), file.path)
                if original != file.path:
                    copies.add(file.path)
                    warnings.append(f"{file.path}: a copy of {original}; left out")
    return [f for f in files if f.path not in copies]


def _differ(files: list[BareFile]) -> bool:
    """Return whether entity tags prove that no two are alike: on S3 the tag is mostly the MD5."""
    etags = {file_state(f.path).etag or "" for f in files}
    return len(etags) == len(files) and all(map(_MD5.fullmatch, etags))


def _bare_run(one: FileSet, digests: Digests) -> RunInput:
    """Return a run of bare files; its id is a name and the digest of the lowest rank's file."""
    first = one.files[0][1]
    if len(one.files) > 1:
        origin = common_folder([f.path.parent for _, f in one.files])
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
        files=[
            SourceFile(f.path, f.source.kind, rank, rank if f.hint.processes > 1 else 0, shift, _shift(f, rank))
            for (rank, f), shift in zip(one.files, one.shifts_ns, strict=True)
        ],
        columns={
            "workload_id": run_id,
            "profiler": first.source.profiler,
            "source": printable(origin),
            "world_size": one.world_size,
        },
        warnings=one.warnings,
        digests=digests,
        looked={f.path: f.looked for _, f in one.files},
        named=frozenset(f.path for _, f in one.files if f.given),
    )


def _shift(file: BareFile, rank: int) -> int:
    """Return how much larger the rank of a file in the run is than the rank that it states."""
    return rank - file.hint.rank if file.hint.processes == 1 and file.hint.rank is not None else 0


def _drop_second(found: Found) -> None:
    """Leave out all but the first of runs with the same id (a run folder and its copy)."""
    runs: dict[str, RunInput] = {}
    for run in found:
        if (first := runs.setdefault(run.run_id, run)) is not run:
            found.warnings.append(
                f"{run.columns['source']}: run {run.run_id} was already found in {first.columns['source']}; left out"
            )
    found[:] = runs.values()


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in re.split(r"([0-9]{1,18})", name)]
