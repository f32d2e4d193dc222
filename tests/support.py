"""Query recordings and samples; count processes and lines of code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pyarrow as pa

import analyze
from analyze.derive import DERIVED
from analyze.ingestion.opening import open_stores
from analyze.query.engine import Engine
from analyze.query.modules import defining, words
from analyze.query.query_declaration import ResultColumn
from analyze.query.query_files import catalog
from analyze.query.selection import DEFAULT, Selection
from analyze.stored_tables import DERIVED_TABLES, TABLES
from schemas.recorded_tables import RECORDED_TABLES
from schemas.table_declaration import row_schema

ROOT = Path(__file__).parent.parent
OWN = tuple(str(ROOT / package) for package in ("analyze", "collect", "schemas"))
"""Where the files of the package are."""
SAMPLES = ROOT / "sample_traces"


def ask(
    path: Path, query: str, where: str | None = None, profiler: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Rows of a query."""
    answer = opened(path).where(where, profiler).query(query, **options)
    names = [c.name for c in answer.columns]
    return [dict(zip(names, row, strict=True)) for row in answer.rows()]


def sql(
    path: Path, statement: str, where: str | None = None, profiler: str | None = None, by: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Rows of a SELECT, run as SQL of the package: without the process that `traces.sql` starts."""
    selection = replace(DEFAULT.narrowed(where, profiler), by=tuple(by))
    return Engine(opened(path).stores, selection).dicts(statement, defining(words(statement.lower())))


def recorded_tables(**rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """The tables that are recorded of a rank, with these rows."""
    names = [name for name in TABLES if name in RECORDED_TABLES or name in rows]
    return {name: pa.Table.from_pylist(rows.get(name, []), row_schema(TABLES[name])) for name in names}


def with_derived(recorded: dict[str, pa.Table], *wanted: str) -> dict[str, pa.Table]:
    """Tables of a rank that has no GPU-only block, and those derived from them: the wanted ones, by default all."""
    needed = set(wanted) or {one.name for one in DERIVED}
    for one in reversed(DERIVED):
        needed |= one.reads.keys() if one.name in needed else set()
    found = dict(recorded)
    for one in DERIVED:
        if one.name in needed and not one.of_gpu_block:
            rows = {t: found.get(t) or row_schema(TABLES[t.removeprefix("full.")]).empty_table() for t in one.reads}
            found[one.name] = one.compute({table: rows[table].select(columns) for table, columns in one.reads.items()})
    return found | recorded


def stored_rows(store: Path | str, tables: Iterable[str] = TABLES) -> dict[str, list[dict[str, Any]]]:
    """All rows of a store by table, in an order of their own."""
    with analyze.open(store) as traces:
        engine = Engine(traces.stores, DEFAULT.narrowed(profiler="all"))
        return {t: engine.dicts(f"SELECT * FROM {t} ORDER BY ALL") for t in tables}


def opened(path: Path) -> analyze.Traces:
    """A recording, opened; still the same for the next question of it: to open one takes longer than most."""
    if not isinstance(path, Path) or (path / "store.json").exists():
        return analyze.open(path)
    files = [path] if path.is_file() or SAMPLES in (path, *path.parents) else sorted(path.rglob("*"))
    states = [(file, stat.st_mtime_ns, stat.st_size) for file in files for stat in (file.stat(),)]
    return _opened(path, *states, os.environ["TRACEQUARRY_CACHE"])


@lru_cache(4)
def _opened(path: Path, *state: object) -> analyze.Traces:
    return analyze.open(path)


@cache
def sample_engine(name: str, selection: Selection = DEFAULT) -> Engine:
    """An engine of a sample, or of all samples with ""; shared, for tests that run many queries."""
    return Engine(open_stores([SAMPLES / name])[0], selection)


class Answered(NamedTuple):
    """The answer to a query, with its rows."""

    columns: tuple[ResultColumn, ...]
    main: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@cache
def default_answer(sample: str, query: str) -> Answered:
    """The answer of a sample, or of all with "", to a query without parameters."""
    asked = sample_engine(sample, Selection(prefer=catalog()[query].prefer)).query(catalog()[query])
    return Answered(asked.columns, asked.main, asked.rows())


def lines_run(task: Callable[[], object]) -> int:
    """Lines of the package that a task runs: a measure of its work that a busy machine does not change, nor what
    others do meanwhile (collect garbage, take samples)."""
    count = 0

    def trace(frame: FrameType, what: str, argument: object) -> Any:
        nonlocal count
        count += what == "line"
        return trace if frame.f_code.co_filename.startswith(OWN) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        task()
    finally:
        sys.settrace(before)
    return count


def forget(store: Path, *fields: str) -> None:
    """Remove fields of all files from a store's catalogue, as older versions wrote it: without sizes a store is
    large, without checksums DuckDB finds the damage."""
    catalogue = json.loads((store / "store.json").read_text())
    for run in catalogue["runs"].values():
        for file in (f for files in run["tables"].values() for f in files):
            for field in fields:
                file.pop(field, None)
    (store / "store.json").write_text(json.dumps(catalogue))


def outdated(store: Path) -> None:
    """Make a store one of an older version, without derived tables."""
    file = store / "store.json"
    catalogue = json.loads(file.read_text())
    for run in catalogue["runs"].values():
        run["derived"] = ""
        run["tables"] = {t: files for t, files in run["tables"].items() if t not in DERIVED_TABLES}
    file.write_text(json.dumps(catalogue))


def children(pid: int) -> set[int]:
    """Processes that a process has started and that exist, as Linux lists them."""
    return {int(p) for task in Path(f"/proc/{pid}/task").glob("*/children") for p in task.read_text().split()}


def alive(pid: int) -> bool:
    """Whether a process runs: it is there, and not a zombie."""
    with suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False
