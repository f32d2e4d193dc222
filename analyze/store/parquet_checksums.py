"""Check the CRC-32 of a store's Parquet files before they are read.

DuckDB does not check page checksums, so a flipped bit can change a number in an answer. The catalogue has the CRC-32 of
each file, and each process checks a file once, at 3 GB/s from the page cache. Objects at URLs are not checked: they
would have to be fetched whole, and object storage has its own checksums.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from analyze.cpus import cpus
from analyze.errors import InputError
from analyze.store.cache_location import cache_folder
from analyze.store.catalogue import TableFile
from analyze.store.file_digest import crc32
from analyze.store.store import Store

MOST_BYTES = 2 << 30
"""Bytes of a table's files above which they are not checked: queries read only some columns or ranks of them."""

_verified: set[tuple[Path, int]] = set()
"""Files that this process checked, with their CRC-32; a file of a store never changes."""


def verify(store: Store, files: Sequence[TableFile]) -> None:
    """Check the files of a table that a query reads. Raises InputError for a damaged one."""
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
    """Say how to repair a damaged file of a store."""
    if path.is_relative_to(cache_folder().resolve()):
        return "`analyze cache --clear` creates it again"
    return "ingest its run again with --again"
