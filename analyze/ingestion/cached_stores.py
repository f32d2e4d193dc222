"""Cached stores, for raw files and for outdated stores that are queried: created on first use, updated, evicted.

An entry is a store in a folder of the cache. Its `source.json` names the paths that it was read from; the modification
time of `source.json` is when the entry was used last.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from analyze.errors import InputError
from analyze.ingestion.derived_version import derived_version
from analyze.store.cache_location import cache_folder
from analyze.store.catalogue import PARSER_VERSION, decoded
from analyze.store.file_digest import printable_text
from analyze.store.safe_folder import Folder
from analyze.store.store import REMOVED, Store, remove

SIZE_VARIABLE = "TRACEQUARRY_CACHE_SIZE"
DEFAULT_SIZE = "20GB"

_SOURCE = "source.json"
_ENTRY = re.compile(r"[0-9a-f]{16}")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT]?)(i?)B|([KMGT]))\s*|\s*0\s*", re.IGNORECASE)
_TRIES = 5


class _Source(msgspec.Struct, kw_only=True):
    """What an entry was read from."""

    paths: list[str]
    state: str
    """Digest of the state of the paths and of the versions of parsers and derived tables."""
    bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None
    """Size of the store; None in an entry of an older version."""


class Entry(NamedTuple):
    """A store in the cache."""

    folder: Path
    source: str
    """The paths of the raw files, or of the outdated store."""
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


def current_entry(sources: Sequence[str], state_of: Callable[[], str], fill: Callable[[Store], set[str]]) -> Store:
    """Return the entry of some paths, held. While their state differs from the stored one, `fill` brings it up to date.

    `fill` returns the runs that the entry has from now on. Raises InputError.
    """
    cache = Folder(cache_folder())
    folder = cache.path / _digest("\0".join(sources), 8)
    with suppress(OSError):
        cache.refuse_link(folder.name)
    for _ in range(_TRIES):
        state = _digest(f"{PARSER_VERSION} {derived_version()} {state_of()}")
        store = Store(folder)
        store.hold()
        if _is_current(cache, store, state):
            cache.touch(f"{folder.name}/{_SOURCE}")
            return store
        store.release()
        runs = fill(store)
        from analyze.ingestion.ingest import sentences  # imports all readers

        with sentences(store), store.lock():
            for run_id in set(store.snapshot.runs) - runs:
                store.forget(run_id)
            store.sweep()
            source = _Source(paths=list(map(printable_text, sources)), state=state, bytes=_bytes(folder))
            cache.write(f"{folder.name}/{_SOURCE}", msgspec.json.encode(source))
        evict(keep=folder)
    raise InputError(f"{sources[0]}: the files change faster than they are read")


def _digest(text: str, size: int = 16) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).hexdigest()


def _is_current(cache: Folder, store: Store, state: str) -> bool:
    try:
        source = _read_source(cache, store.folder.name)
    except (OSError, ValueError):
        return False
    return source.state == state and not any(map(store.damage, store.snapshot.runs))


def _read_source(cache: Folder, entry: str) -> _Source:
    """Read `source.json` of an entry. Raises OSError, ValueError, and InputError for a link."""
    return decoded(cache.read(f"{entry}/{_SOURCE}"), _Source)


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

    `keep` and entries in use stay. Returns the evicted entries. Raises InputError.
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
