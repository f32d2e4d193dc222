"""DuckDB over stores: a view for every table, the macros, and the answer to a query."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import duckdb

from analyze import kernel_names
from analyze.computed import COMPUTED, named_in
from analyze.errors import InputError
from analyze.query_files import Query, ResultColumn, all_blocks, blocks
from analyze.store import PARSER_VERSION, Store
from schemas.tables import TABLES, Column

if TYPE_CHECKING:
    import pyarrow as pa

_SQL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE", "bool": "BOOLEAN"}


class Answer:
    """Result of a query: its columns, and its rows in the form that is asked for. Rows can be taken once."""

    def __init__(self, columns: tuple[ResultColumn, ...], result: duckdb.DuckDBPyRelation, what: str, owner: object):
        self.columns = columns
        self._result = result
        self._what = what
        self.empty: bool | None = None
        """Whether there were no rows; None before they are taken."""
        self._owner = owner  # of the connection: before DuckDB 2, a relation does not keep it open

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as Python values. Raises InputError for an error that shows only while rows are computed."""
        return self._take(self._result.fetchall)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table. Raises InputError as `rows` does."""
        return self._take(self._result.to_arrow_table)

    def _take(self, fetch: Callable[[], Any]) -> Any:
        try:
            taken = fetch()
        except duckdb.Error as e:
            raise InputError(f"{self._what}: {_first_line(e)}") from e
        self.empty = len(taken) == 0
        return taken


class Engine:
    """The tables of one or several stores, in a DuckDB that can read them and nothing else.

    `where` is SQL over the columns of `runs` (and `rank`): only what it selects exists. `by` names columns of `runs`
    (or `rank`) whose values become groups of their own in every answer.
    """

    def __init__(self, stores: Sequence[Store], by: Sequence[str] = (), where: str | None = None):
        self.stores = list(stores)
        self.by = tuple(by)
        self._made: set[str] = set()
        # What does not fit into memory; DuckDB makes the folder when it needs it, and removes it.
        spill = Path(tempfile.gettempdir()) / f"tracequarry-{uuid4().hex}"
        self.connection = duckdb.connect(config={"autoinstall_known_extensions": False, "temp_directory": str(spill)})
        self._execute("SET autoload_known_extensions = false")
        self._chosen: list[tuple[Store, str]] = []
        for store in stores:
            for run_id, run in store.snapshot.runs.items():
                if run.parser != PARSER_VERSION:
                    raise InputError(
                        f"{store.folder}: {run_id} was ingested by another version of tracequarry; ingest it again"
                    )
            seen = {r for _, r in self._chosen}
            self._chosen += [(store, r) for r in store.snapshot.runs if r not in seen]
        self._create_run_keys()
        self._create_runs(where)
        for table in TABLES:
            if table not in ("runs", "kernel_names"):
                self._create_view(table)
        self._create_kernel_names()
        self._lock()

    @property
    def run_ids(self) -> list[str]:
        """The runs that exist here."""
        return [r for _, r in self._chosen]

    def _execute(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
        return self.connection.execute(sql, parameters)

    def _create_run_keys(self) -> None:
        """Type of every run_id: joins and groups on a number instead of a long text take half the time and memory."""
        keys = sorted(r for _, r in self._chosen)
        listed = ", ".join("'" + k.replace("'", "''") + "'" for k in keys)
        self._execute(f"CREATE TYPE run_key AS ENUM ({listed})")

    def _create_runs(self, where: str | None) -> None:
        """Table `runs`, reduced to what `where` selects and numbered into groups by `by`."""
        self._execute(f"CREATE TABLE all_runs AS {self._scan('runs')}")
        ranks = [(r, rank) for s, r in self._chosen for rank in _ranks(s, r)]
        self._execute("CREATE TABLE run_ranks (run_id run_key, rank INTEGER)")
        if ranks:
            self._execute(
                "INSERT INTO run_ranks SELECT unnest($1), unnest($2)", [[r for r, _ in ranks], [n for _, n in ranks]]
            )
        columns = {c.name for c in TABLES["runs"].columns} | {"rank"}
        for name in self.by:
            if name not in columns:
                raise InputError(f"--by {name}: runs has no such column; it has {', '.join(sorted(columns))}")
        try:
            self._execute(
                "CREATE TABLE selected AS SELECT * FROM all_runs JOIN run_ranks USING (run_id)"
                + (f" WHERE ({where})" if where else "")
            )
        except duckdb.Error as e:
            raise InputError(f"--where {where!r}: {_first_line(e)}") from e
        by = ", ".join(f'"{b}"' for b in self.by)
        number = f"dense_rank() OVER (ORDER BY {by})::INTEGER" if by else "NULL::INTEGER"
        self._execute(f"CREATE TABLE run_groups AS SELECT *, {number} AS run_group FROM selected")
        self._execute(
            "CREATE VIEW runs AS SELECT DISTINCT ON (run_id) * EXCLUDE (rank) FROM run_groups ORDER BY run_id"
        )
        kept = {r for (r,) in self._execute("SELECT DISTINCT run_id FROM selected").fetchall()}
        self._filtered = self._execute(
            "SELECT (SELECT count(*) FROM selected) < (SELECT count(*) FROM run_ranks)"
        ).fetchone() == (True,)
        self._chosen = [(s, r) for s, r in self._chosen if r in kept]

    def _create_view(self, table: str) -> None:
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
        """SELECT over the Parquet files of a table; an empty one of the right types where there are none."""
        files = [str(s.folder / p) for s, r in self._chosen for p in s.snapshot.runs[r].paths(r, table)]
        columns = TABLES[table].columns
        if not files:
            return _no_rows(table)
        names = ", ".join("run_id::run_key AS run_id" if c.name == "run_id" else f'"{c.name}"' for c in columns)
        listed = ", ".join("'" + f.replace("'", "''") + "'" for f in files)
        return f"SELECT {names} FROM read_parquet([{listed}], hive_partitioning = false, union_by_name = false)"

    def _lock(self) -> None:
        """From here on: the stores' folders can be read, nothing else can be opened, and no setting changed."""
        folders = [str(s.folder.resolve()) for s in self.stores] + [str(s.folder) for s in self.stores]
        listed = ", ".join("'" + f.replace("'", "''") + "'" for f in dict.fromkeys(folders))
        self._execute(f"SET allowed_directories = [{listed}]")
        self._execute("SET enable_external_access = false")
        self._execute("SET lock_configuration = true")

    def _prepare(self, sql: str, uses: Iterable[str], folders: Iterable[Path] = ()) -> None:
        """Make the blocks that a query uses, and the tables that are computed, not stored, if its SQL names them."""
        self._make_blocks(uses, folders)
        self._compute(sql)

    def _make_blocks(self, names: Iterable[str], folders: Iterable[Path] = ()) -> None:
        for name, block in blocks(names, folders).items():
            if name not in self._made:
                self._compute(block)
                self._execute(block)
                self._made.add(name)

    def _compute(self, sql: str) -> None:
        for table in named_in(sql):
            if table not in self._made:
                self._make_blocks(COMPUTED[table].uses)
                COMPUTED[table].create(self.connection, table)
                self._made.add(table)

    def query(
        self,
        query: Query,
        params: dict[str, str] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        select: Sequence[str] = (),
    ) -> Answer:
        """Answer a query; with `select`, only these columns, in this order.

        Raises InputError for bad parameters, an unknown column or SQL that DuckDB rejects.
        """
        sql, values, choices = query.bind(params or {})
        self._prepare(sql, query.uses, [query.path.parent.parent])
        documented = query.result_columns(choices)
        order = _sort_clause(sort, [*self.by, *(c.name for c in documented)]) if sort else ""
        if not order:
            # The columns last, so that rows which tie come in the same order every time.
            ties = [f'_answer."{c.name}"' for c in documented]
            order = ", ".join(filter(None, ["run_group", query.fill(query.order, choices), *ties]))
        groups = [b for b in self.by if b not in {c.name for c in documented}]
        kinds = {c.name: c for c in TABLES["runs"].columns}
        columns = {b: (_group_column(b, kinds.get(b)), f'_group."{b}"') for b in groups}
        columns |= {c.name: (c, f'_answer."{c.name}"') for c in documented}
        if "run_id" in columns:
            columns["run_id"] = (columns["run_id"][0], f"{columns['run_id'][1]}::VARCHAR")
        unknown = [name for name in select if name not in columns]
        if unknown:
            raise InputError(f"--select {unknown[0]}: no such column; the result has {', '.join(columns)}")
        shown = [columns[name] for name in dict.fromkeys(select or columns)]
        names = ", ".join(f'{source} AS "{c.name}"' for c, source in shown)
        join = ""
        if groups:
            distinct = ", ".join(f'"{b}"' for b in groups)
            join = f"JOIN (SELECT DISTINCT run_group, {distinct} FROM run_groups) _group USING (run_group)"
        final = f"WITH _answer AS (\n{sql}\n)\nSELECT {names} FROM _answer {join}\nORDER BY {order}" + (
            f" LIMIT {int(limit)}" if limit is not None else ""
        )
        what = f"query {query.name}"
        return Answer(tuple(c for c, _ in shown), self._run(final, values, what), what, self)

    def sql(self, sql: str) -> Answer:
        """Answer one SELECT over the tables. Raises InputError for anything else and for errors in it."""
        try:
            statements = duckdb.extract_statements(sql)
        except duckdb.Error as e:
            raise InputError(f"SQL: {_first_line(e)}") from e
        if len(statements) != 1 or statements[0].type not in (
            duckdb.StatementType.SELECT,
            duckdb.StatementType.EXPLAIN,
        ):
            raise InputError("SQL: only one SELECT is allowed; the store is opened for reading")
        self._prepare(sql, all_blocks())
        result = self._run(sql, {}, "SQL")
        types = zip(result.columns, result.types, strict=True)
        columns = tuple(ResultColumn(name, guess_unit(name, str(kind)), "") for name, kind in types)
        return Answer(columns, result, "SQL", self)

    def _run(self, sql: str, values: dict[str, Any], what: str) -> duckdb.DuckDBPyRelation:
        try:
            return self.connection.sql(sql, params=values or None)
        except duckdb.Error as e:
            raise InputError(f"{what}: {_first_line(e)}") from e


def _no_rows(table: str) -> str:
    types = {c.name: "run_key" if c.name == "run_id" else _SQL_TYPES[c.type] for c in TABLES[table].columns}
    nulls = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in types.items())
    return f"SELECT {nulls} WHERE false"


def _ranks(store: Store, run_id: str) -> list[int]:
    tables = store.snapshot.runs[run_id].tables
    return sorted({r for t, ranks in tables.items() if t not in ("runs", "kernel_names") for r in ranks} or {0})


def _group_column(name: str, column: Column | None) -> ResultColumn:
    if column is None:
        return ResultColumn(name, "index", "process rank")
    return ResultColumn(name, {"string": "text", "bool": "bool"}.get(column.type, "index"), column.doc)


def guess_unit(name: str, sql_type: str) -> str:
    """Unit of a column of free SQL, from the endings that the tables use."""
    if sql_type in ("VARCHAR", "DATE") or "STRUCT" in sql_type or sql_type.endswith("]"):
        return "text"
    for ending, unit in (("_ns", "ns"), ("_pct", "%"), ("_bytes", "B"), ("_s", "s")):
        if name.endswith(ending):
            return unit
    return "B" if name == "bytes" else "number"


def _sort_clause(sort: str, columns: Iterable[str]) -> str:
    known = list(columns)
    terms = []
    for term in sort.split(","):
        name = term.strip().lstrip("-+")
        if name not in known:
            raise InputError(f"--sort {term.strip()}: no such column; the result has {', '.join(known)}")
        terms.append(f'"{name}" {"DESC" if term.strip().startswith("-") else "ASC"} NULLS LAST')
    return ", ".join(terms)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
