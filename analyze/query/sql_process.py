"""Run SQL of users in a process of its own, which answers one request and ends.

Its DuckDB reads the stores' Parquet files and nothing else. The process cannot write to any file, and its memory has a
limit; on time only `serve` sets one (`analyze.serve.query_pool`). It gets its request as a line of JSON on stdin, and
ends when stdin is closed: with the process that asked. It answers with an Arrow stream on stdout, or with a sentence on
stderr and exit code 2 or 3.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyze.errors import InputError, InternalError, MachineError, ReportedError
from analyze.query import duckdb_memory
from analyze.query.databases import empty_database
from analyze.query.query_declaration import ResultColumn
from analyze.query.selection import Selection
from analyze.store.object_storage import store_to_json
from analyze.store.store import Store
from schemas.isolation import python, python_variables

if TYPE_CHECKING:
    import pyarrow as pa

_START = "from analyze.query.sql_worker import main; main()"
OF_THE_MACHINE = 3
"""Exit code if memory or the disk ran out."""
TYPE, UNIT = b"duckdb_type", b"unit"
"""Keys of the metadata of a column."""


class ProcessRows:
    """The rows that a process computes, read as they come."""

    def __init__(self, request: Mapping[str, Any], what: str):
        """Start the process, and wait until it knows its columns. Raises InputError with the sentence that it says."""
        import pyarrow as pa

        self._what = what
        pipe, variables = subprocess.PIPE, os.environ | python_variables()
        self._process = subprocess.Popen(python("-c", _START), stdin=pipe, stdout=pipe, stderr=pipe, env=variables)
        self._end = weakref.finalize(self, _end, self._process)
        self._said: list[bytes] = []
        self._batches: list[pa.RecordBatch] = []
        self._rows_read = self._bytes_read = 0
        self._unread = True
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._listening = threading.Thread(target=_read_all, args=(self._process.stderr, self._said), daemon=True)
        self._listening.start()
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            self._stream = pa.ipc.open_stream(self._process.stdout)
        except (OSError, pa.ArrowException):
            raise self._failed() from None
        self.columns = [ResultColumn(f.name, f.metadata[UNIT].decode(), "") for f in self._stream.schema]
        self._types: list[str] = [f.metadata[TYPE].decode() for f in self._stream.schema]

    def limit(self, most: int) -> FirstRows:
        """Return the first rows only; the process computes no more than they need."""
        return FirstRows(self, most)

    def to_arrow_table(self, most: int | None = None) -> pa.Table:
        """Return all rows, or the first ones, as an Arrow table. Raises InputError if the process ends before them."""
        import pyarrow as pa

        self._read(most)
        schema = pa.schema([field.remove_metadata() for field in self._stream.schema])
        table = pa.Table.from_batches(self._batches, self._stream.schema).cast(schema)
        return table if most is None else table.slice(0, most)

    def fetchall(self, most: int | None = None) -> list[tuple[Any, ...]]:
        """Return all rows, or the first ones, as Python values. Raises InputError as `to_arrow_table` does."""
        rows = empty_database().from_arrow(self.to_arrow_table(most)).fetchall()
        # Arrow has no HUGEINT, which a sum of integers is; DuckDB writes it as a decimal without places.
        whole = ["HUGEINT" in kind for kind in self._types]
        if any(whole):
            rows = [tuple(_whole(v) if w else v for v, w in zip(row, whole, strict=True)) for row in rows]
        return rows

    def _read(self, most: int | None) -> None:
        """Read until this many rows were read, or all."""
        import pyarrow as pa

        limit = duckdb_memory.memory_bytes() or duckdb_memory.duckdb_limit(empty_database())
        try:
            while self._unread and (most is None or self._rows_read < most):
                try:
                    batch = self._stream.read_next_batch()
                except StopIteration:
                    self._unread = False
                    if self._process.wait():
                        raise self._failed() from None
                    self._end()
                    return
                self._batches.append(batch)
                self._rows_read += batch.num_rows
                self._bytes_read += batch.nbytes
                if self._bytes_read > limit:
                    more = f"more than {limit / 1e9:.1f} GB (${duckdb_memory.MEMORY_VARIABLE})"
                    raise MachineError(f"{self._what}: out of memory: the answer has {more}; a LIMIT cuts it")
        except (OSError, pa.ArrowException):
            raise self._failed() from None

    def _failed(self) -> ReportedError:
        """Return why the process ended, in a sentence."""
        code = self._process.wait()
        self._listening.join()
        said = b"".join(self._said).decode("utf-8", "replace").strip()
        if code == 2 and said:
            return InputError(said)
        if code == OF_THE_MACHINE and said:
            return MachineError(said)
        if code < 0:
            return MachineError(f"{self._what}: its process was ended by signal {-code} (out of memory?)")
        last = said.splitlines()[-1] if said else "nothing"
        return InternalError(f"{self._what}: its process ended with exit code {code} and said: {last}")


class FirstRows:
    """The first rows of a process."""

    def __init__(self, rows: ProcessRows, most: int):
        self._rows, self._most = rows, most

    def limit(self, most: int) -> FirstRows:
        """Return fewer of them."""
        return FirstRows(self._rows, min(most, self._most))

    def to_arrow_table(self) -> pa.Table:
        """Return them as an Arrow table. Raises InputError."""
        return self._rows.to_arrow_table(self._most)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return them as Python values. Raises InputError."""
        return self._rows.fetchall(self._most)


def _whole(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, list):
        return [_whole(v) for v in value]
    return {k: _whole(v) for k, v in value.items()} if isinstance(value, dict) else value


def _read_all(stream: Any, into: list[bytes]) -> None:
    into.append(stream.read())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
    process.wait()


def request(
    stores: Sequence[Store],
    selection: Selection,
    sql: str | None = None,
    query: Path | None = None,
    params: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the request to a process: one SELECT, or a query file with its parameters and `AnswerOptions`."""
    return {
        "stores": list(map(store_to_json, stores)), "selection": asdict(selection), "sql": sql,
        "query": None if query is None else str(query.absolute()), "params": dict(params or {}),
        "options": dict(options or {}),
    }  # fmt: skip
