"""One module per raw format: reads a raw file into Arrow record batches of the tables in `schemas`.

To add a format, write a module here with `SOURCES` and `read(path, report)`: see `interface`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import iter_modules

from analyze.errors import reading
from analyze.sources.compressed import decompressed, head, is_gzip, plain_name
from analyze.sources.encodings import as_utf8, is_utf16, utf8_head
from analyze.sources.interface import LOG_NAME, FileReport, Mapper, Source, TableBatch, inline_map
from analyze.sources.rank_hint import RankHint
from analyze.sources.remote import RawPath, fetched
from analyze.sources.unread import what_instead
from schemas.option_declaration import LARGEST_INT32

SOURCES: tuple[Source, ...] = tuple(
    source
    for found in iter_modules(__path__)
    for source in getattr(importlib.import_module(f"{__name__}.{found.name}"), "SOURCES", ())
)
"""The formats of all modules and packages here, in the order of their names."""
BY_KIND = {s.kind: s for s in SOURCES}
_MOST_SPECIAL_FIRST = sorted(SOURCES, key=lambda s: s.begins is None)

_HEAD_BYTES = 64 << 10
_SQLITE = b"SQLite format 3\0"


def detect(path: RawPath) -> Source | None:
    """Return the format of a bare file by name and beginning, or None; the first that fits. Raises InputError."""
    if LOG_NAME.match(plain_name(path)) and head(path, len(_SQLITE)) == _SQLITE:  # an export may be named report.db
        if what_instead(path.name):
            return None
        return BY_KIND["rocpd" if b"rocpd_" in head(path, _HEAD_BYTES) else "nsys_sqlite"]
    for source in _MOST_SPECIAL_FIRST:
        if source.name is None or not source.name.match(plain_name(path)) or (source.folder and is_gzip(path)):
            continue
        if source.begins is None or source.begins.search(utf8_head(path, _HEAD_BYTES)):
            return source
    return None


@contextmanager
def on_disk(
    kind: str, path: RawPath, folder: Path | None = None, on_copied: Callable[[int], object] | None = None
) -> Iterator[Path]:
    """Yield the raw file itself, or a copy of a remote one with its companions (`analyze.sources.remote.fetched`)."""
    if isinstance(path, Path):
        yield path
        return
    source = BY_KIND[kind]
    if source.folder:
        beside = [p for p in path.parent.iterdir() if p.suffix == path.suffix and p.is_file()]
    else:
        beside = [p for end in source.beside if (p := path.with_name(path.name + end)).is_file()]
    with fetched(path, beside, folder, on_copied) as copy:
        yield copy


def rank_hint(source: Source, path: RawPath) -> RankHint:
    """Return the rank and job that a bare file states. Raises InputError if it does not begin like its format."""
    if not source.says_rank:
        return RankHint()
    read_rank_hint = importlib.import_module(source.module).read_rank_hint
    with reading(path):
        if source.splits:
            hint = read_rank_hint(path)
        else:
            with on_disk(source.kind, path) as here, decompressed(here, []) as plain:
                hint = read_rank_hint(plain)
    rank, world_size = hint.rank, hint.world_size
    if world_size is not None and not 0 < world_size <= LARGEST_INT32:
        world_size = None
    if rank is not None and not 0 <= rank < (world_size or LARGEST_INT32):
        rank = world_size = None  # one of them is wrong
    return hint._replace(rank=rank, world_size=world_size)


def read(kind: str, path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the rows of a raw file. Raises InputError if the file is not of its kind."""
    source = BY_KIND[kind]
    module = importlib.import_module(source.module)
    mappers = [mapper] if source.splits else []
    problems: list[str] = []
    with reading(path):
        if source.splits and not is_utf16(path):
            yield from module.read(path, report, *mappers)
            return
        with decompressed(path, problems) as plain, as_utf8(plain, problems) as text:
            yield from module.read(text, report, *mappers)
    report.warnings += problems
