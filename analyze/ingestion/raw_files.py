"""What a raw file says of itself before it is read: its place in a job, and whether another one holds the same."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from analyze.errors import InputError, unreadable
from analyze.sources import Source, detect, on_disk
from analyze.sources.base import SourceFile
from analyze.sources.compressed import is_packed, plain_name, unpacked
from analyze.sources.encodings import as_utf8, is_utf16
from analyze.sources.rank_hint import RankHint
from analyze.sources.remote import RawPath, RemotePath, raw_paths
from analyze.store.file_digest import printable
from analyze.whole_file import protect
from schemas.files import is_file
from schemas.manifest import MANIFEST_NAME
from schemas.options import LARGEST_INT32


def given_paths(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[RawPath]:
    """What the user named. Raises InputError for what cannot be looked at; that nothing is there is said later."""
    found = raw_paths(paths)
    for path in found:
        try:
            if isinstance(path, Path):
                is_file(path / MANIFEST_NAME)  # which cannot be seen if the path cannot, or may not be entered
                if is_file(path):
                    protect(path)
        except (OSError, ValueError) as e:
            raise unreadable(printable(path), e) from e
    return found


def rank_hint(source: Source, path: RawPath) -> RankHint:
    """What a bare file says of its rank and its job. Raises InputError if it is no trace by its beginning."""
    rank = world_size = job = clock_ns = None
    processes = 1
    if source.kind == "chrome_trace":
        from analyze.sources.chrome.metadata import LONGEST_GZIP, read_metadata

        whole = isinstance(path, RemotePath) and is_packed(path) and path.facts().bytes <= LONGEST_GZIP
        try:
            with on_disk(source.kind, path) if whole else nullcontext(path) as here:
                info = read_metadata(here).distributed
        except InputError:
            if not is_utf16(path):
                raise
            with on_disk(source.kind, path) as copy, as_utf8(copy, []) as text:
                info = read_metadata(text).distributed
        if info:
            rank, world_size = info.rank, info.world_size
    elif source.kind in ("nsys_sqlite", "nsys_tables"):
        from analyze.sources.nsys.reader import read_place

        with on_disk(source.kind, path) as here, unpacked(here, []) as plain:
            rank, world_size, job, processes, clock_ns = read_place(plain)
    if world_size is not None and not 0 < world_size <= LARGEST_INT32:
        world_size = None
    if rank is not None and not 0 <= rank < (world_size or LARGEST_INT32):
        rank = world_size = None  # one of them is wrong
    return RankHint(rank, world_size, job, processes, clock_ns)


def export_of(source: Source, path: RawPath, rank: int = 0) -> SourceFile | None:
    """The file beside a report that holds the same and is read instead, if there is one."""
    report = path.with_name(plain_name(path))
    for suffix in source.exported:
        for export in (report.with_suffix(suffix), report.with_suffix(f"{suffix}.gz")):
            if export.is_file() and not export.is_symlink() and (found := detect(export)):
                return SourceFile(export, found.kind, rank)
    return None
