"""What questions computed of large runs, kept for the next ones: sums of call trees, paths, answers.

A file holds a table of one run, or the answer to one question. Its name is a digest of all that its rows follow from:
the runs' Parquet files as they are (places, sizes, times), the code, and what was asked. So nothing kept is ever out of
date: of a run that was ingested again, what was kept is asked for no more, and goes when room is needed. A file is
there whole or not at all, and one that cannot be read is made again. None of it is needed: where nothing can be
written, nothing is kept.

Files lie in the cache. What was computed for it (`analyze prepare`) lies in the store, for whoever reads that, from
wherever; there the digest is of what the runs were read from, not of places and times.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from analyze.store.cache import kept_folder
from analyze.store.store import Store
from schemas.files import part_file

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 1 << 30
"""That all files may take; what was not used for longest goes first."""
_MOST_OF_ONE = 1 << 28


def state_of(store: Store, run_id: str) -> str:
    """A digest of a run as it is: where its files lie, how large they are, and when they were written."""
    run = store.snapshot.runs[run_id]
    digest = hashlib.blake2b(f"{run_id}\0{run.parser}\0{run.rules}".encode(), digest_size=16)
    files = list(run.table_files)
    for path, file in zip(store.for_readers(files), files, strict=True):
        written = None
        if not store.filesystem:  # where each writing has a name of its own
            with suppress(OSError):
                written = Path(path).stat().st_mtime_ns
        digest.update(f"\0{path}\0{file.bytes}\0{written}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class Kept:
    """Tables of runs, by their names."""

    def __init__(
        self, stores: Mapping[str, Store], whole: Iterable[str], code: Callable[[], str], in_stores: bool = False
    ):
        """`stores`: that of each run; `whole`: the runs that exist with all their ranks; `code`: a digest of what
        computes; `in_stores`: keep all in the stores, what the cache has of it, too, and raise InputError where one
        cannot be written."""
        self._stores = stores
        self._whole = frozenset(whole)
        self._code = code
        self._in_stores = in_stores
        self._states: dict[str, str] = {}

    def read(self, table: str) -> dict[str, pa.Table]:
        """What is kept of a table, by run, with the rows of all its ranks."""
        found = {run_id: self._read([run_id], table) for run_id in self._stores}
        return {run_id: rows for run_id, rows in found.items() if rows is not None}

    def answer(self, asked: str) -> pa.Table | None:
        """The rows of a question about all the runs, with the metadata that they were kept with."""
        return self._read(self._stores, f"answer\0{asked}")

    def keep_answer(self, asked: str, rows: pa.Table) -> None:
        """Keep the rows of a question; `asked` says all that was asked, and of which of the runs' ranks."""
        if rows.nbytes <= _MOST_OF_ONE:
            self._write(self._stores, f"answer\0{asked}", rows)
            self.make_room()

    def lacking(self, found: Iterable[str]) -> list[str]:
        """The runs of which something can be kept, but for those of which it was found."""
        return sorted(self._whole - set(found))

    def write(self, table: str, run_id: str, rows: pa.Table) -> None:
        """Keep a table of a run, unless it is too large; `make_room` after the last."""
        self._write([run_id], table, rows)

    def make_room(self) -> None:
        """Remove what was not used for longest, beyond MOST_BYTES."""
        with suppress(OSError):
            states = [(path.stat(), path) for path in kept_folder().glob("*.parquet")]
            total = 0
            for state, path in sorted(states, key=lambda one: one[0].st_mtime, reverse=True):
                total += state.st_size
                if total > MOST_BYTES:
                    path.unlink(missing_ok=True)

    def _read(self, run_ids: Iterable[str], table: str) -> pa.Table | None:
        store = self._store(run_ids)
        rows = _table(store.read_kept(self._name(run_ids, table))) if store else None
        if rows is None:
            path = self._path(run_ids, table)
            with suppress(OSError):
                rows = _table(path.read_bytes())
                os.utime(path)
            if rows is not None and self._in_stores:
                self._write(run_ids, table, rows)
        return rows

    def _write(self, run_ids: Iterable[str], table: str, rows: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = pa.BufferOutputStream()
        pq.write_table(rows, buffer, compression="zstd", write_page_checksum=True)
        data = buffer.getvalue().to_pybytes()
        if len(data) > _MOST_OF_ONE:
            return
        if self._in_stores and (store := self._store(run_ids)):
            store.write_kept(self._name(run_ids, table), data)
            return
        path = self._path(run_ids, table)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with part_file(path) as part:
                part.write_bytes(data)

    def _store(self, run_ids: Iterable[str]) -> Store | None:
        """The store of some runs; None if there are several."""
        stores = {id(store): store for store in map(self._stores.__getitem__, run_ids)}
        return next(iter(stores.values())) if len(stores) == 1 else None

    def _path(self, run_ids: Iterable[str], table: str) -> Path:
        """Where it lies in the cache."""
        for run_id in run_ids:
            if run_id not in self._states:
                self._states[run_id] = state_of(self._stores[run_id], run_id)
        return kept_folder() / self._name([self._states[run_id] for run_id in sorted(run_ids)], table)

    def _name(self, runs: Iterable[str], table: str) -> str:
        name = "\0".join((self._code(), *sorted(runs), table)).encode("utf-8", "surrogateescape")
        return f"{hashlib.blake2b(name, digest_size=16).hexdigest()}.parquet"


def _table(data: bytes | None) -> pa.Table | None:
    """The rows of a file; None if they cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if data:
        with suppress(OSError, ValueError, pa.ArrowException):
            # (read_table would import what reads data sets first, for as long as the rest takes.)
            return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()
    return None
