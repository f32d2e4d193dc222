"""Whether the Parquet files of a store still hold the bytes that were written.

DuckDB checks no checksum of a page, so a flipped bit in one can be another number in an answer. The CRC-32 of each file
is in the catalogue, and a process checks a file before the first question that reads it: 3 GB/s of what the system has
in memory. Objects at URLs are not checked: they would have to be fetched whole, and storage has checksums of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from analyze.cpus import cpus
from analyze.errors import InputError
from analyze.store.cache_folder import cache_folder
from analyze.store.catalogue import TableFile
from analyze.store.file_digest import crc32
from analyze.store.store import Store

MOST_BYTES = 2 << 30
"""Bytes of a table's files above which they are not checked: a question reads few columns or ranks of so large ones."""

_verified: set[tuple[Path, int]] = set()
"""Files that this process found whole, with their CRC-32: a file of a store is written once and never changed."""


def verify(store: Store, files: Sequence[TableFile]) -> None:
    """Check the files of a table that a question reads. Raises InputError for a damaged one."""
    if store.filesystem is not None or sum(f.bytes or 0 for f in files) > MOST_BYTES:
        return
    named = zip(map(Path, store.for_readers(files)), files, strict=True)
    todo = [(path, f.crc32) for path, f in named if f.crc32 is not None and (path, f.crc32) not in _verified]
    if not todo:
        return
    with ThreadPoolExecutor(cpus()) as pool:
        for (path, expected), found in zip(todo, pool.map(_crc32, [path for path, _ in todo]), strict=True):
            if found != expected:
                raise InputError(f"{path}: damaged: its bytes are not those that were written; {what_helps(path)}")
            _verified.add((path, expected))


def _crc32(path: Path) -> int:
    try:
        return crc32(path)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e


def what_helps(path: Path) -> str:
    """What to do about a damaged file of a store."""
    if path.is_relative_to(cache_folder().resolve()):
        return "`analyze cache --clear` has it made again"
    return "ingest its run again, with --again"
