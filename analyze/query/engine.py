"""DuckDB over stores: a view for every table, the blocks, and the answer to a query."""

from __future__ import annotations

import copy
import re
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from math import inf
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb

from analyze.errors import InputError
from analyze.query import spill
from analyze.query.answer import Answer, Statement
from analyze.query.blocks import Part, blocks, defining, parts, words
from analyze.query.literals import text_literal
from analyze.query.open_files import threads
from analyze.query.plain_sql import check_block, check_expression, check_select, names_in, names_in_block, sentence
from analyze.query.query_files import BUILT_IN, RANK_COLUMNS, TIMING, Query, ResultColumn
from analyze.store import kernel_names
from analyze.store.catalogue import PARSER_VERSION, RUN_TABLES
from analyze.store.store import Store
from schemas.tables import TABLES, Column

PROFILERS = (*TIMING, "ncu", "none")

_SMALL = 3 << 20
"""Bytes of Parquet files up to which recordings are small: those of some 50 MB of traces."""

_BIGINT = duckdb.sqltypes.BIGINT
_RUN_COLUMNS = {c.name: c for c in TABLES["runs"].columns} | dict.fromkeys(RANK_COLUMNS)
"""What runs are selected and grouped by."""

_STORED = TABLES.keys() - {"runs"}
"""Tables of which an engine makes a view when something reads them. Of SQL that is not this package's own, all: what it
may mean by a name that is not there is said."""

_SQL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE", "bool": "BOOLEAN"}

_NUMERIC = re.compile(r"(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\))$")

_UNITS = {
    "images_per_s": "images/s", "flops_per_s": "FLOP/s", "gb_per_s": "GB/s", "_per_s": "number", "_ns": "ns",
    "_pct": "%", "_bytes": "B", "_flops": "FLOP", "_s": "s",
}  # fmt: skip
"""Units of columns of free SQL by the ends of their names; the first that fits counts."""

P = ParamSpec("P")
T = TypeVar("T")


def _one_at_a_time(ask: Callable[Concatenate[Engine, P], T]) -> Callable[Concatenate[Engine, P], T]:
    """Let one thread ask an engine; what fails for another reason than its SQL may leave a block half-made."""

    @wraps(ask)
    def alone(self: Engine, *args: P.args, **options: P.kwargs) -> T:
        with self.lock:
            try:
                return ask(self, *args, **options)
            except BaseException as e:
                cause = e.__cause__ if isinstance(e, InputError) else e
                if not isinstance(cause, duckdb.ProgrammingError | duckdb.DataError | None):
                    self._blocks.whole = False
                raise

    return alone


class _Blocks:
    """What engines beside each other have made of stored tables and blocks, by name."""

    def __init__(self) -> None:
        self.made: set[str] = set()
        self.whole = True
        self._locks: dict[str, threading.Lock] = {}

    @contextmanager
    def made_once(self, name: str) -> Iterator[bool]:
        """Whether it is to be made now; no other thread makes the same meanwhile."""
        with self._locks.setdefault(name, threading.Lock()):
            yield name not in self.made
            self.made.add(name)


class Engine:
    """The tables of one or several stores, in a DuckDB that can read them and nothing else.

    `where` is one SQL expression (or several, of which all must hold) over the columns of `runs` (and `rank`, `node`):
    only what it selects exists. `by` names columns of `runs` (or `rank`, `node`) whose values become groups of their
    own in every answer.

    A workload that was recorded under several profilers has a run for each pass. So that none of its work counts
    twice, one timing pass of each workload exists: of those that `where` selects and that hold GPU work, the first of
    TIMING, or `prefer` if that is among them. All do with `prefer` "all", and where `by` tells them apart (run_id,
    profiler). `profiler`: instead, only runs that were recorded under it; "all" for all.

    `keep`: views that many questions rest on (@keep of the blocks) are computed once and kept, for who asks many. Of
    small recordings every view is: to plan it again in each place that reads it takes longer.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        by: Sequence[str] = (),
        where: str | Sequence[str | None] | None = None,
        profiler: str | None = None,
        prefer: str | None = None,
        keep: bool = False,
    ):
        self.keep = keep
        """May be set later, for blocks that are not made yet."""
        self.stores = list(stores)
        self.by = tuple(by)
        self.note = ""
        """What of the recordings is left out, in a sentence."""
        self.lock = threading.RLock()
        """Held while the connection works: it refuses a second thread."""
        self._blocks = _Blocks()
        self._chosen: list[tuple[Store, str]] = []
        self._ranks: dict[str, set[int]] = {}
        """The ranks of each run that exist, where some are left out: other files need not be opened."""
        for store in stores:
            seen = {r for _, r in self._chosen}
            self._chosen += [(store, r) for r in store.snapshot.runs if r not in seen]
        folder = spill.spill_folder()
        self._at_end: Callable[[], object] = weakref.finalize(self, spill.remove, folder)
        self.connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "temp_directory": str(folder),
                "threads": threads(),
                **spill.memory_limit(),
            }
        )
        self._lock()
        self._create_run_keys()
        self._create_runs([where] if isinstance(where, str) else list(where or ()))
        self._choose_passes(profiler, prefer)
        self._create_groups()
        self._small = self._bytes() <= _SMALL

    def close(self) -> None:
        """Close the connection; rows of answers that were not taken cannot be taken any more."""
        with self.lock:
            self.connection.close()
            self._at_end()

    def beside(self) -> Engine:
        """An engine of the same tables for another thread. What one makes of the blocks is there for both."""
        other = copy.copy(self)
        other.lock = threading.RLock()
        with self.lock:
            other.connection = self.connection.cursor()
        other._at_end = lambda: self  # which is there as long as the other
        return other

    @property
    def whole(self) -> bool:
        """False once something may be half-made: further questions need another engine."""
        return self._blocks.whole

    def interrupt(self) -> None:
        """End what it works on, from another thread: that raises InputError."""
        with suppress(duckdb.ConnectionException):  # closed meanwhile
            self.connection.interrupt()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For `execute`, the rows of which are in the way of any other question until the last is taken."""
        with self.lock:
            try:
                yield
            finally:
                self.connection.abort()

    @property
    def held_bytes(self) -> int:
        """Memory of the tables that were made here; 0 while they are worked with."""
        if not self.lock.acquire(blocking=False):
            return 0
        try:
            held = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
            return sum(size for (size,) in self._execute(held).fetchall())
        finally:
            self.lock.release()

    @property
    def run_ids(self) -> list[str]:
        """The runs that exist here."""
        return [r for _, r in self._chosen]

    @property
    def tables(self) -> set[str]:
        """The stored tables that these runs have."""
        return {table for store, run_id in self._chosen for table in store.snapshot.runs[run_id].tables}

    def _execute(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
        """Run a statement of this module's own: what fails is the store (a file damaged, gone) or the machine."""
        try:
            return self.connection.execute(sql, parameters)
        except (duckdb.Error, UnicodeError) as e:
            raise InputError(f"{self._folders()}: {sentence(e)}") from e

    def _folders(self) -> str:
        return ", ".join(map(str, self.stores))

    def _lock(self) -> None:
        """From here on: the stores' Parquet files can be read, nothing else can be opened, and no setting changed.

        DuckDB cannot be told that what it may read it must not write; `plain_sql` lets nothing through that would.
        `store.json` is not among the files.
        """
        for system in {str(s.filesystem.protocol): s.filesystem for s in self.stores if s.filesystem}.values():
            self.connection.register_filesystem(system)
        files = {file for table in TABLES for found in self._files(table).values() for file in found}
        for setting in ("autoload_known_extensions", "python_enable_replacements"):
            self._execute(f"SET {setting} = false")
        self._execute("SET GLOBAL TimeZone = 'UTC'")
        # A file whose name reads as a pattern is opened under its name, too.
        self._execute("SET allowed_paths = $1", [sorted(files | {_literal(f) for f in files})])
        self._execute("SET enable_external_access = false")
        self._execute("SET lock_configuration = true")

    def _create_run_keys(self) -> None:
        """Type of every run_id: joins and groups on a number instead of a long text take half the time and memory."""
        keys = sorted(r for _, r in self._chosen)
        listed = ", ".join(map(text_literal, keys))
        self._execute(f"CREATE TYPE run_key AS ENUM ({listed})")

    def _create_runs(self, wheres: Sequence[str | None]) -> None:
        """Table `selected`: the runs and ranks that all of `wheres` hold for."""
        for name in self.by:
            if name not in _RUN_COLUMNS:
                raise InputError(f"--by {name}: runs has no such column; it has {', '.join(sorted(_RUN_COLUMNS))}")
        ranks = [(r, rank) for s, r in self._chosen for rank in _ranks(s, r)]
        self._execute(
            f"CREATE TABLE selected AS SELECT a.*, rank, h.host AS node FROM ({self._scan('runs')}) a"
            " JOIN (SELECT unnest($1::VARCHAR[])::run_key AS run_id, unnest($2::INTEGER[]) AS rank) USING (run_id)"
            f" LEFT JOIN ({self._scan('rank_hosts')}) h USING (run_id, rank)",
            [[r for r, _ in ranks], [n for _, n in ranks]],
        )
        for where in filter(None, wheres):
            what = f"--where {where!r}"
            check_expression(self.connection, where, what)
            try:
                self.connection.execute(f"DELETE FROM selected WHERE (\n{where}\n) IS NOT TRUE")
            except duckdb.Error as e:
                raise InputError(f"{what}: {sentence(e)}") from e

    def _choose_passes(self, profiler: str | None, prefer: str | None) -> None:
        """Leave one timing pass of each workload in `selected`, as the class says."""
        if profiler not in (None, "all", *PROFILERS):
            raise InputError(f"--profiler {profiler}: must be one of {', '.join(PROFILERS)} or all")
        if profiler not in (None, "all"):
            self._execute("DELETE FROM selected WHERE profiler IS DISTINCT FROM $1", [profiler])
        if profiler is not None or prefer == "all" or {"run_id", "profiler"} & set(self.by) or len(self._chosen) < 2:
            return
        tables = {r: s.snapshot.runs[r].tables for s, r in self._chosen}
        passes: dict[str, dict[str, tuple[bool, bool, int]]] = {}
        for workload, run_id, name, status in self._execute(
            "SELECT DISTINCT workload_id, run_id, profiler, status FROM selected WHERE workload_id IS NOT NULL"
        ).fetchall():
            if name in TIMING:
                no_work = not any(tables[run_id].get(t) for t in ("kernels", "memcpys", "memsets", "gpu_summary"))
                worth = (no_work or status == "failed", name != prefer, TIMING.index(name))
                known = passes.setdefault(workload, {})
                known[name] = min(worth, known.get(name, worth))
        used, unused = set(), set()
        for workload, known in passes.items():
            best = min(known, key=lambda name: known[name])
            others = sorted(set(known) - {best})
            if others:
                used.add(best)
                unused.update(others)
                self._execute(
                    "DELETE FROM selected WHERE workload_id = $1 AND list_contains($2, profiler)", [workload, others]
                )
        if used:
            self.note = (
                f"of the passes of a workload, {' or '.join(sorted(used))} is used and {', '.join(sorted(unused))} left"
                " out: --profiler chooses, --by profiler tells them apart"
            )

    def _create_groups(self) -> None:
        """`run_groups`: what is selected, numbered into groups by `by`; and `runs`, a row for each run of it."""
        by = ", ".join(f'"{b}"' for b in self.by)
        number = f"dense_rank() OVER (ORDER BY {by})::INTEGER" if by else "NULL::INTEGER"
        kind = "TABLE" if by else "VIEW"
        self._execute(f"CREATE {kind} run_groups AS SELECT *, {number} AS run_group FROM selected")
        self._execute(
            "CREATE VIEW runs AS SELECT DISTINCT ON (run_id) * EXCLUDE (rank, node)"
            " FROM run_groups ORDER BY run_id, rank"
        )
        ranks = self._execute("SELECT run_id, list(rank) FROM selected GROUP BY run_id").fetchall()
        kept = {run_id: set(found) for run_id, found in ranks}
        self._chosen = [(s, r) for s, r in self._chosen if r in kept]
        self._filtered = any(len(kept[r]) < len(_ranks(s, r)) for s, r in self._chosen)
        if self._filtered:
            self._ranks = kept

    def _create_view(self, table: str) -> None:
        if table == "kernel_names":
            self._create_kernel_names()
            return
        scan = self._scan(table)
        if self.by or self._filtered:
            sql = f"SELECT t.*, g.run_group FROM ({scan}) t JOIN run_groups g USING (run_id, rank)"
        else:
            sql = f"SELECT *, NULL::INTEGER AS run_group FROM ({scan})"
        self._execute(f"CREATE VIEW {table} AS {sql}")

    def _create_kernel_names(self) -> None:
        """`kernel_names` as stored, or classified anew where the rules have changed since."""
        stale = [(s, r) for s, r in self._chosen if s.snapshot.runs[r].rules != kernel_names.rules_digest()]
        if not stale:
            self._execute(f"CREATE VIEW kernel_names AS {self._scan('kernel_names')}")
            return
        stored = self._execute(f"SELECT run_id, name FROM ({self._scan('kernel_names')})").fetchall()
        columns = [c.name for c in TABLES["kernel_names"].columns]
        self._execute(f"CREATE TABLE kernel_names AS {_no_rows('kernel_names')}")
        rows = [row for run_id, name in stored for row in kernel_names.rows(run_id, [name])]
        arrays = ", ".join(f"unnest(${i + 1})" for i in range(len(columns)))
        self._execute(f"INSERT INTO kernel_names SELECT {arrays}", [[row[c] for row in rows] for c in columns])

    def _scan(self, table: str) -> str:
        """SELECT over the Parquet files of a table; an empty one of the right types where there are none.

        Columns that an older version did not write are NULL.
        """
        selects = []
        ranks = {r for found in self._ranks.values() for r in found} if table not in RUN_TABLES else set()
        # The least and greatest rank of a row group say whether it is read at all.
        only = f" WHERE rank BETWEEN {min(ranks)} AND {max(ranks)}" if ranks else ""
        of_one = self.run_ids[0] if len(self.run_ids) == 1 else None
        for parser, files in self._files(table).items():
            listed = ", ".join(text_literal(_literal(f)) for f in files)
            source = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = false)"
            there = None if parser == PARSER_VERSION else set(self.connection.sql(f"SELECT * FROM {source}").columns)
            names = ", ".join(_selected(c, there, of_one) for c in TABLES[table].columns)
            selects.append(f"SELECT {names} FROM {source}{only}")
        return " UNION ALL ".join(selects) or _no_rows(table)

    def _files(self, table: str) -> dict[int, list[str]]:
        """Parquet files of a table, by the version of the parser that wrote them."""
        files: dict[int, list[str]] = {}
        for store, run_id in self._chosen:
            run = store.snapshot.runs[run_id]
            found = run.tables.get(table, [])
            if run_id in self._ranks and table not in RUN_TABLES:
                found = [f for f in found if not self._ranks[run_id].isdisjoint(f.ranks)]
            if found:
                files.setdefault(run.parser, []).extend(store.for_readers(found))
        return files

    def _bytes(self) -> float:
        """Of the Parquet files of what is selected; infinite where a store does not say."""
        runs = (store.snapshot.runs[run_id] for store, run_id in self._chosen)
        return sum(inf if file.bytes is None else file.bytes for run in runs for file in run.table_files)

    def _make_read(self, sql: str, uses: Iterable[str], folders: Iterable[Path] = ()) -> None:
        """Make what SQL reads, unless it is there: stored tables, and of the blocks that it uses, with their own."""
        read = parts(blocks(uses, folders), sql)
        for table in _STORED & words(sql).union(*(part.words for part in read)):
            with self._blocks.made_once(table) as new:
                if new:
                    self._create_view(table)
        for part in read:
            with self._blocks.made_once(part.name) as new:
                if new:
                    self._make(part)

    def _make(self, part: Part) -> None:
        block = part.block
        if not block.built_in:
            what = f"block {block.name}"
            _check_declared(names_in_block(self.connection, block.sql, what), block.uses, what)
            check_block(self.connection, block.sql, what)
        try:
            if block.create is not None:
                block.create(self.connection, block.name)
            elif not (block.built_in and self._keeps(part) and self._make_table(part)):
                self.connection.execute(part.sql)
        except duckdb.Error as e:
            raise InputError(f"{self._folders() if block.create else f'block {block.name}'}: {sentence(e)}") from e

    def _keeps(self, part: Part) -> bool:
        kept = part.block.once + (part.block.keep if self.keep else ())
        return self._small or part.name in kept

    def _make_table(self, part: Part) -> bool:
        """Make a table in place of a view; False, and nothing made, if it is none or, of small recordings, cannot be
        computed: it may be that no question reads it."""
        view = f"CREATE VIEW {part.name} AS"
        if not part.sql.startswith(view):
            return False
        try:
            self.connection.execute(part.sql.replace(view, f"CREATE TABLE {part.name} AS", 1))
        except duckdb.Error as e:
            if not self._small or isinstance(e, duckdb.InterruptException):
                raise
            return False
        return True

    @_one_at_a_time
    def query(
        self,
        query: Query,
        params: dict[str, str] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        select: Sequence[str] = (),
        only: Mapping[str, str] | None = None,
    ) -> Answer:
        """Answer a query; with `select`, only these columns, in this order; with `only`, only such rows.

        Raises InputError for bad parameters, an unknown column or SQL that DuckDB rejects.
        """
        sql, values, choices = query.bind(params or {})
        uses = query.used(choices)
        built_in = query.path.is_relative_to(BUILT_IN.parent)
        if not built_in:
            _check_declared(names_in(self.connection, sql, f"query {query.name}"), uses, f"query {query.name}")
        documented = query.result_columns(choices)
        columns = {b: (_group_column(b), f'_group."_{b}"') for b in self.by}
        for c in documented:
            source = f'_answer."{c.name}"' + ("::VARCHAR" if c.name == "run_id" else "")
            # A query that does not say for each row what tells the groups apart.
            columns[c.name] = (c, f'coalesce({source}, _group."_{c.name}")' if c.name in self.by else source)
        unknown = [name for name in select if name not in columns]
        if unknown:
            raise InputError(f"--select {unknown[0]}: no such column; the result has {', '.join(columns)}")
        shown = [columns[name] for name in dict.fromkeys(select or columns)]
        names = ", ".join(f'{source} AS "{c.name}"' for c, source in shown)
        held = []
        for number, (name, text) in enumerate((only or {}).items()):
            if name not in columns:
                raise InputError(f"query {query.name}: {name}: no such column; the result has {', '.join(columns)}")
            held.append(f"coalesce({columns[name][1]}::VARCHAR, '') = $_only_{number}")
            values[f"_only_{number}"] = text
        join = ""
        if self.by:
            distinct = ", ".join(f'"{b}"{"::VARCHAR" if b == "run_id" else ""} AS "_{b}"' for b in self.by)
            join = f"JOIN (SELECT DISTINCT run_group, {distinct} FROM run_groups) _group USING (run_group)"
        # The columns last, so that rows which tie come in the same order every time.
        order = [
            *(_sort_terms(sort, {name: source for name, (_, source) in columns.items()}) if sort else ()),
            "run_group", query.fill(query.order, choices), *(f'_answer."{c.name}"' for c in documented),
        ]  # fmt: skip
        final = f"WITH _answer AS (\n{sql}\n)\nSELECT {names} FROM _answer {join}"
        final += f"\nWHERE {' AND '.join(held)}" if held else ""
        final += "\nORDER BY " + ", ".join(filter(None, order))
        final += f"\nLIMIT {int(limit)}" if limit is not None else ""
        self._make_read(final if built_in else " ".join([final, *_STORED]), uses, [query.path.parent.parent])
        what = f"query {query.name}"
        result: duckdb.DuckDBPyRelation | Statement
        if built_in:
            result = Statement(self.connection, final, _bound(values))
        else:
            check_select(self.connection, final, what)
            result = self._run(final, values, what)
        answer = Answer(tuple(c for c, _ in shown), result, what, self, self.note, self.lock)
        if query.main and not select:
            sorted_by = (term.strip().lstrip("-+") for term in (sort or "").split(","))
            answer.main = (*self.by, *(query.fill(name, choices) for name in query.main), *filter(None, sorted_by))
        return answer

    @_one_at_a_time
    def execute(self, sql: str, uses: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
        """Run SQL of this package's own, which reads the blocks `uses`; within `alone`. Raises duckdb.Error."""
        self._make_read(sql, uses)
        return self.connection.execute(sql)

    @_one_at_a_time
    def rows(self, sql: str, uses: Iterable[str] = ()) -> list[tuple[Any, ...]]:
        """All rows of what `execute` runs. Raises duckdb.Error."""
        return self.execute(sql, uses).fetchall()

    @_one_at_a_time
    def sql(self, sql: str) -> Answer:
        """Answer one SELECT over the tables and what the blocks define, which need not be declared.

        Raises InputError for anything else and for errors in it.
        """
        names = names_in(self.connection, sql, "SQL")
        self._make_read(" ".join([*names, *_STORED]), defining(names))
        check_select(self.connection, sql, "SQL")
        result = self._run(sql, {}, "SQL")
        types = zip(result.columns, result.types, strict=True)
        columns = tuple(ResultColumn(name, guess_unit(name, str(kind)), "") for name, kind in types)
        return Answer(columns, result, "SQL", self, self.note, self.lock)

    def _run(self, sql: str, values: dict[str, Any], what: str) -> duckdb.DuckDBPyRelation:
        try:
            return self.connection.sql(sql, params=_bound(values))
        except (duckdb.Error, UnicodeError) as e:
            raise InputError(f"{what}: {sentence(e)}") from e


def _bound(values: dict[str, Any]) -> dict[str, Any] | None:
    """Parameters of a statement, numbers as BIGINT: a small one would be INTEGER, and a thousand times it overflow."""
    return {n: duckdb.Value(v, _BIGINT) if isinstance(v, int) else v for n, v in values.items()} or None


def _check_declared(names: Iterable[str], uses: Iterable[str], what: str) -> None:
    """Raise InputError for what is read of a built-in block that is not declared: it would not be there every time."""
    if missing := [name for name in defining(names) if name not in uses]:
        raise InputError(f"{what}: it reads what the block {missing[0]} defines, so it needs -- @use {missing[0]}")


def _no_rows(table: str) -> str:
    return f"SELECT {', '.join(_selected(c, ()) for c in TABLES[table].columns)} WHERE false"


def _selected(column: Column, there: Container[str] | None, run_id: str | None = None) -> str:
    """A column of a scan, NULL if it is not there; None: all are, in their types.

    `run_id`: that of all rows. As a constant it is not read, and joins and groups need not look at it.
    """
    kind = "run_key" if column.name == "run_id" else _SQL_TYPES[column.type]
    if run_id is not None and column.name == "run_id":
        return f"{text_literal(run_id)}::run_key AS run_id"
    if there is not None and column.name not in there:
        return f'NULL::{kind} AS "{column.name}"'
    return f'"{column.name}"::{kind} AS "{column.name}"' if there or column.name == "run_id" else f'"{column.name}"'


def _ranks(store: Store, run_id: str) -> list[int]:
    return sorted(store.snapshot.runs[run_id].ranks or {0})


def _group_column(name: str) -> ResultColumn:
    column = _RUN_COLUMNS[name]
    if column is None:
        return ResultColumn(name, *RANK_COLUMNS[name])
    return ResultColumn(name, {"string": "text", "bool": "bool"}.get(column.type, "index"), column.doc)


def _literal(path: str) -> str:
    """A path as a pattern that only it matches: DuckDB takes what stands in read_parquet for one."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def guess_unit(name: str, sql_type: str) -> str:
    """Unit of a column of free SQL, from the endings that the tables use."""
    if not _NUMERIC.match(sql_type):
        return {"BOOLEAN": "bool", "TIMESTAMP": "time"}.get(sql_type, "text")
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return unit
    return "B" if name == "bytes" else "number"


def _sort_terms(sort: str, sources: dict[str, str]) -> list[str]:
    terms = []
    for term in sort.split(","):
        name = term.strip().lstrip("-+")
        if name not in sources:
            raise InputError(f"--sort {term.strip()}: no such column; the result has {', '.join(sources)}")
        terms.append(f"{sources[name]} {'DESC' if term.strip().startswith('-') else 'ASC'} NULLS LAST")
    return terms
