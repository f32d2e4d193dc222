"""Stores for raw files that a query was given directly: created on first use, updated, evicted when unused.

An entry is a store in a folder of the cache. Its `source.json` names the raw files; the modification time of
`source.json` is when the entry was used last.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from analyze.atomic_output import protect
from analyze.errors import InputError
from analyze.ingestion.derived_version import derived_version
from analyze.ingestion.progress import Progress
from analyze.ingestion.raw_files import given_paths
from analyze.ingestion.run_folders import is_part_of_job
from analyze.sources.remote import RawPath, RemotePath
from analyze.store.cache_location import cache_folder
from analyze.store.catalogue import PARSER_VERSION, decoded
from analyze.store.file_digest import file_state, printable_text
from analyze.store.object_storage import store_at
from analyze.store.safe_folder import Folder
from analyze.store.store import REMOVED, Store, remove
from schemas.manifest import MANIFEST_NAME

SIZE_VARIABLE = "TRACEQUARRY_CACHE_SIZE"
DEFAULT_SIZE = "20GB"

_SOURCE = "source.json"
_ENTRY = re.compile(r"[0-9a-f]{16}")
_MANY_FILES = 10_000
"""From this number of files on, the progress names the folder that is searched."""
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT]?)(i?)B|([KMGT]))\s*|\s*0\s*", re.IGNORECASE)
_TRIES = 5


class _Source(msgspec.Struct, kw_only=True):
    """The raw files of an entry."""

    paths: list[str]
    state: str
    """Digest of the names, sizes and times of every file below the paths."""
    bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None
    """Size of the store; None in an entry of an older version."""


class Entry(NamedTuple):
    """A store in the cache."""

    folder: Path
    source: str
    """The paths of the raw files."""
    bytes: int
    used: float
    """Last use, in s since 1970."""


class Contents(NamedTuple):
    """The entries of the cache, and those that were just removed."""

    folder: Path
    entries: list[Entry]
    removed: list[Entry]

    @property
    def limit(self) -> int:
        """Size limit in bytes. Raises InputError."""
        return limit()


def contents(clear: bool = False, max_size: str | int | None = None) -> Contents:
    """List the cache. First remove all entries (`clear`), or evict down to `max_size` (bytes, or a text such as "5GB").

    The least recently used entries go first; entries in use stay. Raises InputError.
    """
    removed: list[Entry] = []
    if clear and max_size is not None:
        raise InputError("cache: either --clear or --max-size")
    if clear:
        removed = evict(0)
    elif max_size is not None:
        removed = evict(parse_size(max_size, "--max-size") if isinstance(max_size, str) else max_size)
    return Contents(cache_folder(), entries(), removed)


def open_stores(
    paths: Sequence[Path],
    progress: Progress | None = None,
    on_read: Callable[[str], object] = lambda text: None,
) -> tuple[list[Store], list[str]]:
    """Open a store for each path of the user; return them and the warnings of the ingest.

    A store is opened directly. Raw files and folders are ingested into the cache: each run folder into a store of its
    own. All others, and several run folders of nodes of a job, are ingested into one store: only together do they say
    what is one run. An entry is updated when a size, modification time or entity tag changes; `on_read` then receives
    what the files were read as. Raises InputError.
    """
    progress = progress or Progress()
    stores: list[Store] = []
    warnings: list[str] = []
    together: list[RawPath] = []
    given = given_paths(paths)
    folders = {path: folder for path in given if (folder := _run_folder(path)) is not None}
    for path in given:
        if isinstance(path, RemotePath) and (store := store_at(str(path))).exists():
            stores.append(_opened(store, warnings))
        elif isinstance(path, Path) and path.is_dir() and Store.is_store(path):
            protect(path)
            stores.append(_opened(Store(path), warnings))
        elif path in folders and (len(folders) == 1 or not is_part_of_job(folders[path])):
            stores.append(_cached([path], progress, warnings, on_read))
        else:
            together.append(path)
    if together:
        stores.append(_cached(together, progress, warnings, on_read))
    if not any(s.snapshot.runs for s in stores):
        raise InputError(f"{given[0] if given else 'PATH'}: the store has no runs")
    return stores, warnings


def _run_folder(path: RawPath) -> RawPath | None:
    """Return the run folder that a path, or its run.json, is; None if it is something else."""
    folder = path.parent if path.name == MANIFEST_NAME else path
    return folder if folder.is_dir() and (folder / MANIFEST_NAME).is_file() else None


def _opened(store: Store, warnings: list[str]) -> Store:
    """Open a store that the user named. Raises InputError if a file is damaged or a newer tracequarry wrote it."""
    store.hold()
    for run_id, run in store.snapshot.runs.items():
        if run.parser > PARSER_VERSION:
            raise InputError(f"{store}: {run_id} was ingested by a newer tracequarry; upgrade this one")
        if problem := store.damage(run_id):
            raise InputError(f"{problem}; ingest {run_id} again")
    if old := [r for r, run in store.snapshot.runs.items() if run.parser < PARSER_VERSION]:
        warnings.append(
            f"{store}: {len(old)} run(s) were ingested by an older tracequarry; columns that it did not read are "
            "missing; ingest them again"
        )
    return store


def _cached(
    given: Sequence[RawPath], progress: Progress, warnings: list[str], on_read: Callable[[str], object]
) -> Store:
    """Return the entry of some paths, updated if they changed."""
    resolved = [str(p.resolve()) for p in given]
    key = "\0".join(resolved).encode("utf-8", "surrogateescape")
    cache = Folder(cache_folder())
    folder = cache.path / hashlib.blake2b(key, digest_size=8).hexdigest()
    with suppress(OSError):
        cache.refuse_link(folder.name)
    for attempt in range(_TRIES):
        paths = given_paths(map(str, given)) if attempt else given  # list again
        state = _state([p.resolve() for p in paths], progress)
        store = Store(folder)
        store.hold()
        if _is_current(cache, store, state):
            cache.touch(f"{folder.name}/{_SOURCE}")
            return store
        store.release()
        from analyze.ingestion.discover import discover
        from analyze.ingestion.ingest import ingest, sentences

        runs = discover(paths, store.raw_files())
        result = ingest(runs, store, progress=progress)
        with sentences(store), store.lock():
            for run_id in set(store.snapshot.runs) - ({r.run_id for r in runs} - set(result.failed)):
                store.forget(run_id)
            store.sweep()
            source = _Source(paths=[printable_text(p) for p in resolved], state=state, bytes=_bytes(folder))
            cache.write(f"{folder.name}/{_SOURCE}", msgspec.json.encode(source))
        warnings += runs.warnings + result.warnings
        on_read(result.read_as)
        evict(keep=folder)
    raise InputError(f"{given[0]}: the files change faster than they are read")


def _is_current(cache: Folder, store: Store, state: str) -> bool:
    try:
        source = _read_source(cache, store.folder.name)
    except (OSError, ValueError):
        return False
    return source.state == state and not any(map(store.damage, store.snapshot.runs))


def _read_source(cache: Folder, entry: str) -> _Source:
    """Read `source.json` of an entry. Raises OSError, ValueError, and InputError for a link."""
    return decoded(cache.read(f"{entry}/{_SOURCE}"), _Source)


def _state(paths: Sequence[RawPath], progress: Progress) -> str:
    """Digest of the files below the paths and of the versions of parsers and derived tables."""
    digest = hashlib.blake2b(f"{PARSER_VERSION} {derived_version()}".encode(), digest_size=16)
    for path in paths:
        if isinstance(path, RemotePath):
            states = [file_state(file) for file in path.files()]
            digest.update(repr(states).encode("utf-8", "surrogateescape"))
            continue
        for number, file in enumerate((path,) if path.is_file() else _files(path)):
            if number == _MANY_FILES:
                progress.search(str(path))
            try:
                stat = file.stat(follow_symlinks=file == path)
                line = f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\0"
            except OSError as e:
                line = f"{file}\0{e.errno}\0"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(files):
            yield Path(parent, name)


def entries() -> list[Entry]:
    """Return the entries of the cache, the most recently used first."""
    found = []
    cache = Folder(cache_folder())
    try:
        names = [name for name in cache.folders() if _ENTRY.fullmatch(name)]
    except OSError:
        return []
    for name in names:
        size = None
        try:
            used = cache.stat(f"{name}/{_SOURCE}").st_mtime
            source = _read_source(cache, name)
            paths, size = ", ".join(source.paths), source.bytes
        except (OSError, ValueError, InputError):
            used, paths = 0.0, "(unknown)"
        folder = cache.path / name
        # Each ingest reads all entries: to look at each of their files would take 0.6 ms an entry.
        found.append(Entry(folder, paths, _bytes(folder) if size is None else size, used))
    return sorted(found, key=lambda e: (-e.used, e.folder))


def _bytes(folder: Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += Path(parent, name).lstat().st_size
            except OSError:
                continue  # removed meanwhile
    return total


def evict(max_bytes: int | None = None, keep: Path | None = None) -> list[Entry]:
    """Evict the least recently used entries until at most `max_bytes` are left (default: `limit`).

    `keep` and entries in use stay. Returns what was removed. Raises InputError.
    """
    most = limit() if max_bytes is None else max_bytes
    cache = Folder(cache_folder())
    with suppress(OSError):
        for name in cache.folders():
            if name.startswith(REMOVED):
                cache.remove_tree(name)
    found = entries()
    removed: list[Entry] = []
    if sum(e.bytes for e in found) <= most:
        return removed
    # A damaged source.json evicts nothing.
    found = [e._replace(bytes=_bytes(e.folder)) for e in found]
    total = sum(e.bytes for e in found)
    for entry in reversed(found):
        if total > most and entry.folder != keep and remove(cache, entry.folder.name):
            total -= entry.bytes
            removed.append(entry)
    return removed


def limit() -> int:
    """Return the size limit of the cache in bytes: $TRACEQUARRY_CACHE_SIZE, else DEFAULT_SIZE. Raises InputError."""
    return parse_size(os.environ.get(SIZE_VARIABLE) or DEFAULT_SIZE, f"${SIZE_VARIABLE}")


def parse_size(text: str, what: str) -> int:
    """Return the bytes of a size such as 500MB or 1.5GiB. Raises InputError that begins with `what`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InputError(f"{what}: {text!r} is not a size with a unit, such as 500MB or 20GB")
    number, unit, binary, short = match.groups()
    factor = (1024 if binary else 1000) ** " KMGT".index((unit or short or " ").upper())
    return int(float(number or 0) * factor)
