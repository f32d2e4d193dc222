"""Merge small Parquet files of many ranks into few large ones, so that a reader can skip the other ranks.

A file holds ranks in ascending order, each with its devices in ascending order, in row groups of one rank (and one
device); ranks with few rows share a row group. Parquet's minimum and maximum of each row group say which to skip. Row
groups are copied one at a time, so memory does not grow with the files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analyze.errors import InputError
from analyze.ingestion.table_files import RowGroupWriter, reading_parquet
from analyze.store.catalogue import RUN_TABLES
from analyze.store.store import StagedFile

SMALL = 128 << 20
"""Bytes below which a file is merged with others."""
_FULL = 256 << 20
"""Bytes from which no more files are merged into one; with the remainder it stays below 512 MiB."""
_LEAST_ROWS = 16 << 10
"""Rows from which another rank begins a new row group: fewer groups keep the footer small."""


def groups(sizes: Sequence[int]) -> list[list[int]]:
    """Return groups of indices of files to merge, given their sizes in bytes: at least two files each, in order."""
    found: list[list[int]] = []
    filled = _FULL
    for at, size in enumerate(sizes):
        if size >= SMALL:
            continue
        if filled >= _FULL:
            found.append([])
            filled = 0
        found[-1].append(at)
        filled += size
    if len(found) > 1 and filled < SMALL:
        found[-2:] = [found[-2] + found[-1]]
    return [group for group in found if len(group) > 1]


def merge_groups(together: Iterable[Sequence[StagedFile]], folder: Path, pool: Executor) -> list[StagedFile]:
    """Merge each group of files of a table into one below `folder`. Raises InputError as `merge`."""
    waiting = []
    for number, files in enumerate(together):
        ranks = sorted({r for f in files for r in f.ranks})
        file = StagedFile(files[0].table, ranks, folder / f"{number}.parquet")
        waiting.append((file, pool.submit(merge, [f.path for f in files], file.path)))
    for _, future in waiting:
        future.result()
    return [file for file, _ in waiting]


def merged(files: Iterable[StagedFile], folder: Path, pool: Executor, most: int = 1) -> list[StagedFile]:
    """Merge the small files of tables with more than `most` files; return all files. Raises InputError as `merge`."""
    left: list[StagedFile] = []
    together = []
    for table, found in groupby(sorted(files, key=lambda f: (f.table, f.ranks)), key=lambda f: f.table):
        own = list(found)
        if len(own) > most and table not in RUN_TABLES:
            chosen = groups([f.path.stat().st_size for f in own])
            together += [[own[at] for at in group] for group in chosen]
            taken = {at for group in chosen for at in group}
            left += [f for at, f in enumerate(own) if at not in taken]
        else:
            left += own
    return sorted(left + merge_groups(together, folder, pool), key=lambda f: (f.table, f.ranks))


class _Place(NamedTuple):
    """A rank's rows in a row group."""

    rank: int
    file: int
    group: int
    devices: tuple[int | None, ...]
    """Devices of the row group in ascending order, None last."""


def merge(sources: Sequence[Path], target: Path, left_out: Collection[int] = ()) -> None:
    """Merge Parquet files of a table into one, without the rows of some ranks.

    Raises InputError for one that cannot be read.
    """
    metadata = []
    for source in sources:
        with reading_parquet(source):
            metadata.append(pq.read_metadata(source))
    schema = metadata[0].schema.to_arrow_schema()
    places: list[_Place] = []
    for at, source in enumerate(sources):
        if not metadata[at].schema.to_arrow_schema().equals(schema):
            raise InputError(f"{source}: has other columns than {sources[0]}; ingest the run again")
        with reading_parquet(source):
            places += _places(_opened(source, metadata[at]), at)

    @lru_cache(maxsize=1)
    def rows_of(file: int, group: int) -> pa.Table:
        with reading_parquet(sources[file]):
            return _opened(sources[file], metadata[file]).read_row_group(group)

    places = [p for p in places if p.rank not in left_out]
    with _Writer(target, schema) as writer:
        for rank, found in groupby(sorted(places, key=lambda p: p[:3]), key=lambda p: p.rank):
            parts = list(found)
            devices = sorted({d for p in parts for d in p.devices}, key=lambda d: (d is None, d))
            for device in devices or [None]:
                for part in parts:
                    if devices and device not in part.devices:
                        continue
                    rows = rows_of(part.file, part.group)
                    rows = rows.filter(pc.equal(rows["rank"], rank))
                    if len(part.devices) > 1:
                        own = rows["device"]
                        rows = rows.filter(pc.is_null(own) if device is None else pc.equal(own, device))
                    writer.write(rows)
                writer.end()
    wrong = not left_out and writer.rows != sum(m.num_rows for m in metadata)
    if wrong:
        raise InputError(f"{target.name}: the merged rows differ from the rows of {sources[0]} and the files after it")


def _opened(path: Path, metadata: Any) -> Any:
    return pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True)


def _places(file: Any, at: int) -> Iterator[_Place]:
    """Yield the ranks of each row group of a file, with their devices."""
    names = file.schema_arrow.names
    for group in range(file.num_row_groups):
        ranks = _values(file, group, names.index("rank"), "rank")
        devices = _values(file, group, names.index("device"), "device") if "device" in names else ()
        for rank in ranks:
            yield _Place(rank, at, group, devices)


def _values(file: Any, group: int, column: int, name: str) -> tuple[Any, ...]:
    """Return the distinct values of a column in a row group in ascending order, NULL last."""
    known = file.metadata.row_group(group).column(column).statistics
    if known is not None and known.has_min_max and known.min == known.max and not known.null_count:
        return (known.min,)
    values = pc.unique(file.read_row_group(group, columns=[name])[name]).to_pylist()
    return tuple(sorted(values, key=lambda v: (v is None, v)))


class _Writer(RowGroupWriter):
    """Writes row groups of moderate size; only the last may be small."""

    def end(self) -> None:
        """Note that rows of another rank or device follow."""
        if self._pending_rows >= _LEAST_ROWS:
            self.flush()
