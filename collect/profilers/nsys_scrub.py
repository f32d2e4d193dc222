"""Removes from an Nsight Systems SQLite export what must not leave the node: environment, other processes, secrets.

nsys writes the whole environment of the program into its report, as capture metadata and as strings, and the names of
all processes and threads of the node, and the program's output. Of that, the export keeps what collect/redact.py
permits. The report itself (.nsys-rep) cannot be edited.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path

from collect.redact import Redactor, safe_variables

SYSTEM = re.compile(
    r"(Cpu|Gpu|Nv|Cuda|Nic|Ofed|Os|Kernel|Has|Supports?|Is)[A-Z]\w*|\w*(Platform|Version|ABIs)|Hostname|CNTFRQMHz"
)
"""Rows of TARGET_INFO_SYSTEM_ENV that describe the machine. One of the other rows is the whole environment."""
STRING_COLUMN = re.compile(r"(name|\w*text|filename|content|module|symbol|label|message)Id|\w+Name", re.I)
"""Integer columns that refer to StringIds, in exports whose schema has no REFERENCES."""
REFERENCE = re.compile(r'^\s*"?(\w+)"?\s+INTEGER\b.*\bREFERENCES StringIds\b', re.M)
"""A column that refers to StringIds according to the schema."""
PROCESS_TABLES = {"PROCESSES": "globalPid", "ThreadNames": "globalTid"}
"""Tables that name all processes and threads of the node, and their id columns."""
PID_SHIFT = 24
"""The last 24 bits of a globalTid are the thread; the other bits are the globalPid."""

Columns = dict[str, dict[str, str]]
"""Table -> column -> declared type."""


def scrub_export(source: Path, target: Path, environment: Mapping[str, str]) -> None:
    """Write the export `source` to `target` without what must not leave the node. Changes `source`, too.

    `environment` is the one that nsys was started with. `target` must not exist yet; it has no free pages that could
    contain removed data. Raises sqlite3.Error.
    """
    redactor = Redactor(environment)
    with closing(sqlite3.connect(source, isolation_level=None)) as db:
        # Only the copy is used: this file need not survive a crash.
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        schema = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        columns = {table: {r[1]: r[2] for r in db.execute(f'PRAGMA table_info("{table}")')} for table in schema}
        db.execute("BEGIN")
        _rewrite(db, columns, "TARGET_INFO_SYSTEM_ENV", lambda name, value: value if SYSTEM.fullmatch(name) else None)
        _redact_arguments(db, columns, redactor)
        _rewrite(db, columns, "META_DATA_CAPTURE", partial(_capture_metadata, redactor))
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            _rewrite(db, columns, table, lambda name, value: None if "USER" in name else redactor.text(value))
        if "ProcessStreams" in columns:
            db.execute("DELETE FROM ProcessStreams")  # the program's output is in log.txt
        _drop_other_processes(db, columns)
        _drop_unused_strings(db, columns, schema)
        _redact_texts(db, columns, redactor)
        db.execute("COMMIT")
        db.execute("VACUUM INTO ?", (str(target),))


def _rewrite(db: sqlite3.Connection, columns: Columns, table: str, change: Callable[[str, str], str | None]) -> None:
    """Replace each value of a table of names and values by the result of `change`; None removes the row."""
    if table not in columns:
        return
    if not {"name", "value"} <= set(columns[table]):
        db.execute(f"DELETE FROM {table}")
        return
    for row, name, value in db.execute(f"SELECT rowid, name, value FROM {table}").fetchall():
        new = change(name or "", value or "")
        if new is None:
            db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
        elif new != value:
            db.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (new, row))


def _capture_metadata(redactor: Redactor, name: str, value: str) -> str | None:
    """Redact a row of META_DATA_CAPTURE; None removes it. Variables (NAME="VALUE") stay if they are safe."""
    if "USER_NAME" in name:
        return None
    if "ENVIRONMENT" not in name:
        return redactor.text(value)
    variable, _, content = value.partition("=")
    safe = safe_variables({variable: content.removeprefix('"').removesuffix('"')})
    return f'{variable}="{redactor.tokens(safe[variable])}"' if safe else None


def _redact_arguments(db: sqlite3.Connection, columns: Columns, redactor: Redactor) -> None:
    """Redact whole command lines of META_DATA_CAPTURE: an argument may be secret because of the previous one."""
    if "META_DATA_CAPTURE" not in columns:
        return
    lines: dict[str, list[tuple[int, int, str]]] = {}
    for row, name, value in db.execute("SELECT rowid, name, value FROM META_DATA_CAPTURE").fetchall():
        if found := re.fullmatch(r"(.*:)ARGUMENT_(\d+)", name or ""):
            lines.setdefault(found[1], []).append((int(found[2]), row, value or ""))
    for line in lines.values():
        line.sort()
        for (_, row, _), shown in zip(line, redactor.arguments(value for *_, value in line), strict=True):
            db.execute("UPDATE META_DATA_CAPTURE SET value = ? WHERE rowid = ?", (shown, row))


def _drop_other_processes(db: sqlite3.Connection, columns: Columns) -> None:
    """Remove the names of processes without events, and of their threads."""
    recorded: set[int] = set()
    for table, types in columns.items():
        for column in {"globalTid", "globalPid"} & set(types) if table not in PROCESS_TABLES else ():
            recorded.update(p for (p,) in db.execute(f'SELECT DISTINCT {column} >> {PID_SHIFT} FROM "{table}"') if p)
    db.execute("CREATE TEMP TABLE recorded (process INTEGER PRIMARY KEY)")
    db.executemany("INSERT INTO recorded VALUES (?)", ((p,) for p in recorded))
    for table, column in PROCESS_TABLES.items():
        if column in columns.get(table, ()):
            db.execute(
                f"DELETE FROM {table} WHERE coalesce({column} >> {PID_SHIFT}, 0) NOT IN (SELECT process FROM recorded)"
            )


def _drop_unused_strings(db: sqlite3.Connection, columns: Columns, schema: dict[str, str]) -> None:
    """Remove strings that no table refers to: they include the environments of the node's processes."""
    if "StringIds" not in columns:
        return
    db.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
    for table, types in columns.items():
        references = set(REFERENCE.findall(schema[table]))
        for column, kind in types.items():
            if column in references or (kind.upper() == "INTEGER" and STRING_COLUMN.fullmatch(column)):
                query = f'SELECT DISTINCT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
                db.execute(f"INSERT OR IGNORE INTO used {query}")
    db.execute("DELETE FROM StringIds WHERE id NOT IN (SELECT id FROM used)")


def _redact_texts(db: sqlite3.Connection, columns: Columns, redactor: Redactor) -> None:
    """Redact secrets that need no name to be recognised in all remaining texts (NVTX ranges, diagnostics)."""
    db.create_function("redacted", 1, lru_cache(1 << 16)(redactor.tokens), deterministic=True)
    for table, types in columns.items():
        for column, kind in types.items():
            if kind.upper() == "TEXT":
                name = f'"{column}"'
                changed = f"typeof({name}) = 'text' AND redacted({name}) <> {name}"
                db.execute(f'UPDATE "{table}" SET {name} = redacted({name}) WHERE {changed}')
