"""Look at raw files before they are ingested: the rank hint of a file, and an export next to it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from analyze.atomic_output import protect
from analyze.errors import InputError, unreadable
from analyze.sources import Source, detect, on_disk
from analyze.sources.compressed import decompressed, is_gzip, plain_name
from analyze.sources.encodings import as_utf8, is_utf16
from analyze.sources.interface import SourceFile
from analyze.sources.rank_hint import RankHint
from analyze.sources.remote import RawPath, RemotePath, raw_paths
from analyze.store.file_digest import printable
from schemas.files import is_file
from schemas.manifest import MANIFEST_NAME
from schemas.option_declaration import LARGEST_INT32


def given_paths(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[RawPath]:
    """Return the paths that the user named. Raises InputError for a path that cannot be accessed."""
    found = raw_paths(paths)
    for path in found:
        try:
            if isinstance(path, Path):
                is_file(path / MANIFEST_NAME)  # fails if the path cannot be accessed
                if is_file(path):
                    protect(path)
        except (OSError, ValueError) as e:
            raise unreadable(printable(path), e) from e
    return found


def rank_hint(source: Source, path: RawPath) -> RankHint:
    """Return the rank and job that a bare file states. Raises InputError if it does not begin like a trace."""
    rank = world_size = job = clock_ns = None
    processes = 1
    if source.kind == "chrome_trace":
        from analyze.sources.chrome.metadata import LONGEST_GZIP, read_metadata

        whole = isinstance(path, RemotePath) and is_gzip(path) and path.facts().bytes <= LONGEST_GZIP
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
        from analyze.sources.nsys.reader import read_rank_hint

        with on_disk(source.kind, path) as here, decompressed(here, []) as plain:
            rank, world_size, job, processes, clock_ns = read_rank_hint(plain)
    if world_size is not None and not 0 < world_size <= LARGEST_INT32:
        world_size = None
    if rank is not None and not 0 <= rank < (world_size or LARGEST_INT32):
        rank = world_size = None  # one of them is wrong
    return RankHint(rank, world_size, job, processes, clock_ns)


def export_of(source: Source, path: RawPath, rank: int = 0) -> SourceFile | None:
    """Return the export next to a report, which is read instead; None if there is none."""
    report = path.with_name(plain_name(path))
    for suffix in source.exported:
        for export in (report.with_suffix(suffix), report.with_suffix(f"{suffix}.gz")):
            if export.is_file() and not export.is_symlink() and (found := detect(export)):
                return SourceFile(export, found.kind, rank)
    return None
