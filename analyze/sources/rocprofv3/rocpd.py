"""Read databases of rocprofv3 (rocpd): a set of tables for each process group, with its GUID in their names.

https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources.chrome.arrow_columns import Columns, record_batch
from analyze.sources.interface import BATCH_ROWS, FileReport, TableBatch
from analyze.sources.nsys.sqlite_tables import SqliteTables, connect, with_log
from analyze.sources.nsys.values import readable
from analyze.sources.rocprofv3.columns import call_table, check_processes, copy_kind, demangled, sizes, timed, warn

_SET = re.compile(r"rocpd_kernel_dispatch((?:_\w+)?)", re.ASCII)
_TEXT = {"string", "kernel_name", "display_name", "name", "product_name", "type", "extdata", "command", "hostname"}
"""Columns that are read as text, all others as integers: in SQLite any value may have any type."""

_EVENT = (("e", "event", "event_id"),)
_KERNELS = (("s", "info_kernel_symbol", "kernel_id"), ("a", "info_agent", "agent_id"), *_EVENT)
_AGENTS = (("src", "info_agent", "src_agent_id"), ("dst", "info_agent", "dst_agent_id"))
_COPIES = (("n", "string", "name_id"), *_AGENTS, *_EVENT)
_REGIONS = (("n", "string", "name_id"), ("t", "info_thread", "tid"), *_EVENT)


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the kernels, copies, calls and ranges of a database. Raises InputError if it is none of rocprofv3."""
    with with_log(path) as file, closing(connect(file)) as connection:
        tables = SqliteTables(connection, path)
        suffixes = sorted(match[1] for name in tables.names() if (match := _SET.fullmatch(name)))
        if not suffixes:
            raise InputError(f"{path}: not a database of rocprofv3: it has no table rocpd_kernel_dispatch")
        ranks: dict[tuple[str, int | None], int] = {}
        unrepresentable: Counter[str] = Counter()
        databases = {suffix: _Database(connection, tables, suffix) for suffix in suffixes}
        for suffix, database in databases.items():
            for process in database.processes():
                ranks.setdefault((suffix, process), len(ranks))
            report.info |= database.run_columns()
        check_processes(path, len(ranks))
        for (suffix, process), rank in ranks.items():
            for table, columns, n in databases[suffix].work(process):
                yield table, rank if len(ranks) > 1 else None, record_batch(table, columns, n, unrepresentable)
        damaged = sum((database.damaged for database in databases.values()), Counter[str]())
        warn(path, report, len(ranks), unrepresentable, damaged)


class _Database:
    """The tables with one suffix."""

    def __init__(self, connection: sqlite3.Connection, tables: SqliteTables, suffix: str):
        self._connection = connection
        self._tables = tables
        self._suffix = suffix
        self._checked: set[str] = set()
        self.damaged: Counter[str] = Counter()
        """Rows without a start, by table."""

    @cached_property
    def _order(self) -> dict[int | None, int]:
        """Numbers of GPUs by agent, for a file without the table of agents: in the order of the agents."""
        rows = self._rows(f"SELECT DISTINCT {self._column('w', 'kernel_dispatch', 'agent_id')}", "kernel_dispatch")
        return {agent: at for at, agent in enumerate(sorted({row["agent_id"] for row in rows} - {None}))}

    def processes(self) -> list[int | None]:
        """Return the processes with work, by their row in rocpd_info_process."""
        found: set[int | None] = set()
        for table in ("kernel_dispatch", "memory_copy", "region"):
            found |= {row["pid"] for row in self._rows(f"SELECT DISTINCT {self._column('w', table, 'pid')}", table)}
        return sorted(found, key=lambda pid: (pid is None, pid))

    def run_columns(self) -> dict[str, Any]:
        """Return what the file says about the run."""
        agents = self._all("info_agent", ("type", "product_name", "name"))
        names = [row["product_name"] or row["name"] for row in agents if row["type"] == "GPU"]
        commands = [row["command"] for row in self._all("info_process", ("command",)) if row["command"]]
        hosts = [row["hostname"] for row in self._all("info_node", ("hostname",)) if row["hostname"]]
        found = {"gpu_name": names, "command": commands, "host": hosts}
        return {column: values[0] for column, values in found.items() if values}

    def work(self, process: int | None) -> Iterator[tuple[str, Columns, int]]:
        """Yield batches of a process: table, columns, number of rows."""
        axes = [f"{size}_size_{axis}" for size in ("workgroup", "grid") for axis in "xyz"]
        own: Sequence[str] = ("agent_id", "queue_id", "stream_id", "start", "end", "group_segment_size", *axes)
        named = (("s", "display_name"), ("s", "kernel_name"), ("a", "type_index"), ("e", "stack_id"))
        for rows in self._joined("kernel_dispatch", process, _KERNELS, own, named):
            yield "kernels", self._kernels(rows), len(rows["start"])
        own = ("start", "end", "size", "queue_id", "stream_id")
        ends = [(alias, column) for alias in ("src", "dst") for column in ("type", "type_index")]
        for rows in self._joined("memory_copy", process, _COPIES, own, (("n", "string"), *ends, ("e", "stack_id"))):
            yield "memcpys", _memcpys(rows), len(rows["start"])
        yield from self._regions(process)

    def _kernels(self, rows: dict[str, list[Any]]) -> Columns:
        grids, groups = ({a: rows[f"{size}_size_{a}"] for a in "xyz"} for size in ("grid", "workgroup"))
        return {
            "name": [demangled(*names) for names in zip(rows["s.display_name"], rows["s.kernel_name"], strict=True)],
            "device": [
                self._order.get(agent) if index is None else index
                for index, agent in zip(rows["a.type_index"], rows["agent_id"], strict=True)
            ],
            "stream": [q if s is None else s for s, q in zip(rows["stream_id"], rows["queue_id"], strict=True)],
            "shared_mem_bytes": rows["group_segment_size"],
            **sizes(grids, groups),
            **_common(rows),
        }

    def _regions(self, process: int | None) -> Iterator[tuple[str, Columns, int]]:
        categories = {row["id"]: row["string"] or "" for row in self._all("string", ("id", "string"))}
        joined = (("n", "string"), ("t", "tid"), ("e", "stack_id"), ("e", "category_id"), ("e", "extdata"))
        for rows in self._joined("region", process, _REGIONS, ("start", "end", "tid"), joined):
            tables = [call_table(categories.get(c, "")) for c in rows["e.category_id"]]
            for table, api in sorted(set(tables)):
                at = [i for i, found in enumerate(tables) if found == (table, api)]
                part = {name: [values[i] for i in at] for name, values in rows.items()}
                names = part["n.string"]
                if table == "ranges":
                    names = [_message(extdata) or name for extdata, name in zip(part["e.extdata"], names, strict=True)]
                tids = [row if tid is None else tid for tid, row in zip(part["t.tid"], part["tid"], strict=True)]
                columns: Columns = {"name": names, "tid": tids, **_common(part)}
                columns["origin" if table == "ranges" else "api"] = [api] * len(at)
                yield table, columns, len(at)

    def _joined(
        self,
        table: str,
        process: int | None,
        joins: Sequence[tuple[str, str, str]],
        own: Sequence[str],
        joined: Sequence[tuple[str, str]],
    ) -> Iterator[dict[str, list[Any]]]:
        """Yield columns of a table, and ALIAS.COLUMN of the tables that it refers to, in batches."""
        if not self._tables.columns(self._name(table)):
            return
        there = self._tables.columns(self._name(table))
        linked = [j for j in joins if j[2] in there and "id" in self._tables.columns(self._name(j[1]))]
        homes = {alias: home for alias, home, _ in linked}
        selected = {column: self._column("w", table, column) for column in own}
        for alias, column in joined:
            value = self._column(alias, homes[alias], column) if alias in homes else "NULL"
            selected[f"{alias}.{column}"] = value
        sql = f"SELECT {', '.join(selected.values())} FROM {self._quoted(table)} AS w"
        for alias, home, column in linked:
            self._check_ids(home)
            sql += f' LEFT JOIN {self._quoted(home)} AS {alias} ON {alias}.id = w."{column}"'
        sql += f" WHERE {self._value('w', table, 'pid')} IS ?"
        with readable(self._tables.path, self._name(table)):
            cursor = self._connection.execute(sql, (process,))
            start = own.index("start")
            while batch := cursor.fetchmany(BATCH_ROWS):
                timed = [row for row in batch if row[start] is not None]
                self.damaged[table] += len(batch) - len(timed)
                if timed:
                    yield dict(zip(selected, map(list, zip(*timed, strict=True)), strict=True))

    def _check_ids(self, table: str) -> None:
        """Raise InputError unless the ids of rows are distinct integers: a join would multiply events."""
        if table in self._checked:
            return
        sql = f"SELECT 1 FROM {self._quoted(table)} WHERE id IS NOT NULL GROUP BY id"
        with readable(self._tables.path, self._name(table)):
            wrong = self._connection.execute(f"{sql} HAVING count(*) > 1 OR typeof(id) <> 'integer' LIMIT 1").fetchall()
        if wrong:
            raise InputError(f"{self._tables.path}: damaged: the ids of {self._name(table)} are not distinct integers")
        self._checked.add(table)

    def _all(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        return self._rows(f"SELECT {', '.join(self._column('w', table, c) for c in columns)}", table)

    def _rows(self, select: str, table: str) -> list[dict[str, Any]]:
        if not self._tables.columns(self._name(table)):
            return []
        with readable(self._tables.path, self._name(table)):
            cursor = self._connection.execute(f"{select} FROM {self._quoted(table)} AS w")
            names = [one[0] for one in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _name(self, table: str) -> str:
        return f"rocpd_{table}{self._suffix}"

    def _quoted(self, table: str) -> str:
        return f'"{self._name(table)}"'

    def _column(self, alias: str, table: str, column: str) -> str:
        """Return the SQL of a column, under its name."""
        return f'{self._value(alias, table, column)} AS "{column}"'

    def _value(self, alias: str, table: str, column: str) -> str:
        """Return the SQL of the values of a column; NULL if the file does not have it, or something else there."""
        if column not in self._tables.columns(self._name(table)):
            return "NULL"
        value = f'{alias}."{column}"'
        if column in _TEXT:
            return f"CAST({value} AS TEXT)"
        # SQLite casts a text without digits to 0. The comparison is of numbers: '5' and 5.0 are 5.
        return f"CASE WHEN CAST({value} AS INTEGER) = {value} THEN CAST({value} AS INTEGER) END"


def _common(rows: dict[str, list[Any]]) -> Columns:
    return timed(rows["start"], rows["end"], rows["e.stack_id"])


def _memcpys(rows: dict[str, list[Any]]) -> Columns:
    ends = zip(rows["src.type"], rows["src.type_index"], rows["dst.type_index"], strict=True)
    return {
        "kind": [copy_kind(name) for name in rows["n.string"]],
        "device": [src if kind == "GPU" else dst for kind, src, dst in ends],
        "stream": [q if s is None else s for s, q in zip(rows["stream_id"], rows["queue_id"], strict=True)],
        "bytes": rows["size"],
        **_common(rows),
    }


def _message(extdata: str | None) -> str | None:
    """Return the text of a marker."""
    import msgspec

    try:
        found = msgspec.json.decode(extdata or "null", type=dict[str, Any] | None)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    message = (found or {}).get("message")
    return message if isinstance(message, str) else None
