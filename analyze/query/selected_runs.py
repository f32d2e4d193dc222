"""The runs and ranks that a `Selection` leaves: which pass of a workload answers, and views of their stored tables."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb

from analyze.derive import derive
from analyze.derive.interface import FULL
from analyze.derive.twins import COLLECTIVE
from analyze.errors import InputError
from analyze.ingestion import kernel_names
from analyze.ingestion.write_derived_tables import is_stale, with_kernel_names
from analyze.query.damaged_files import naming_files
from analyze.query.databases import empty_database, registered_tables
from analyze.query.literals import literal_path, text_literal
from analyze.query.selection import BLOCKS, GPU_COLUMNS, PROFILERS, TIMING, Selection, check_by
from analyze.query.sql_checks import check_expression, failure, one_select, sentence
from analyze.store.catalogue import PARSER_VERSION, RUN_TABLES, TableFile
from analyze.store.parquet_checksums import verify
from analyze.store.store import Store
from analyze.stored_tables import DERIVED_TABLES, TABLES
from schemas.table_declaration import Column, arrow_schema, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from analyze.query.stored_files import StoredFiles

TWINS_PCT = 99
"""Share of the work of a GPU-only block that must have a twin for the block to answer."""

_OF_FULL = ("captured_ops", "captured_ranges", "cpu_ops", "kernels", "process_groups", "ranges")
OF_FULL_BLOCK = {f"full_{table}": table for table in _OF_FULL}
"""Views that blocks of SQL read: rows of the full block of each GPU-only block, with the run_id of the latter."""

_IN_FILE_ORDER = {"memory_events"}
"""Tables with one more column, `file_row`: the number of the row in its file. Files keep the order of the trace. Events
with equal times (traces in whole us) have no other order."""

_SQL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE", "bool": "BOOLEAN"}


class SelectedRuns:
    """The runs of one or several stores that a `Selection` leaves, in a DuckDB.

    A workload that was recorded under several profilers has a run for each pass. So that no work counts twice, one
    timing pass of each workload exists: of those that `where` selects and that have GPU work, the first of TIMING, or
    `prefer` if it is among them. All passes exist with `prefer` "all", and if `by` has run_id or profiler. With
    `profiler`, only runs that were recorded under it exist; "all" for all. `block` leaves out the GPU-only block or the
    other timing passes. A GPU-only block is not preferred if too little of its work has a twin.

    Where `where` or `by` names columns of GPU work, `run_group` is that of the work: NULL for work that is not
    selected, and for all else of a rank. Queries that declare these columns have rows of GPU work only.
    """

    def __init__(self, stores: Sequence[Store], selection: Selection, stored: StoredFiles | None = None):
        """`stored`: the file system that DuckDB reads the files through; None for the system's own."""
        self._file_system = stored
        self.stores = list(stores)
        self.selection = selection
        self.note = ""
        """Which passes were excluded, in sentences."""
        self.left_out: set[str] = set()
        """Profilers of these passes."""
        self.runs: list[tuple[Store, str]] = []
        self._ranks: dict[str, set[int]] = {}
        """The ranks of each run that exist, where some are left out: other files need not be opened."""
        self._some_left_out = self._filtered = False
        self.gpu_columns: set[str] = set()
        """Columns of GPU work that `where` and `by` name."""
        self._systems: dict[str, Any] = {}
        """The fsspec file system of each file that is not local."""
        self._scanned: set[str] = set()
        """Tables whose files something here reads."""
        for store in stores:
            seen = {r for _, r in self.runs}
            self.runs += [(store, r) for r in store.snapshot.runs if r not in seen]

    def select(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the tables of what is selected; once. Raises InputError."""
        self.connection = connection
        with naming_files(lambda: (connection, self.read())):
            self._create_run_keys()
            self._create_selected()
            self._choose_passes()
            self._create_groups()

    @property
    def run_ids(self) -> list[str]:
        """The runs that exist here."""
        return [r for _, r in self.runs]

    @property
    def tables(self) -> set[str]:
        """The stored tables that these runs have."""
        return {table for store, run_id in self.runs for table in store.snapshot.runs[run_id].tables}

    def execute(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
        """Run a statement of the package's own: what fails is the store (a file damaged, gone) or the machine."""
        try:
            return self.connection.execute(sql, parameters)
        except (duckdb.Error, UnicodeError) as e:
            raise failure(e, str(self)) from e

    def read(self) -> dict[str, str]:
        """The stored files that are read here, by what DuckDB opens them by."""
        return {self.name(f): f for t in sorted(self._scanned) for found in self.files(t).values() for f in found}

    def __str__(self) -> str:
        return ", ".join(map(str, self.stores))

    def _create_run_keys(self) -> None:
        """Type of every run_id: joins and groups on a number instead of a long text take half the time and memory."""
        keys = sorted(r for _, r in self.runs)
        listed = ", ".join(map(text_literal, keys))
        self.execute(f"CREATE TYPE run_key AS ENUM ({listed})")

    def _create_selected(self) -> None:
        """Table `selected`: the runs and ranks for which `where` holds. `selected_gpus`: their GPUs or streams, if
        `where` or `by` names them."""
        wheres = self.selection.where
        check_by(self.selection.by)
        self.gpu_columns = GPU_COLUMNS.keys() & {*self.selection.by, *self._columns_of(wheres)}
        # A join, because a list of all ranks in the SELECT would be copied for each file.
        ranks = [(run_id, rank) for store, run_id in self.runs for rank in _ranks(store, run_id)]
        listed = "SELECT unnest($1::VARCHAR[])::run_key AS run_id, unnest($2::INTEGER[]) AS rank"
        selected = f"SELECT r.*, n.rank FROM ({self._scan('runs')}) r JOIN ({listed}) n USING (run_id)"
        if wheres or "node" in self.selection.by:  # this join doubles the time
            hosts = f"SELECT run_id, rank, host AS node FROM ({self._scan('rank_hosts')})"
            selected = f"SELECT * FROM ({selected}) LEFT JOIN ({hosts}) USING (run_id, rank)"
        self.execute(f"CREATE TABLE selected AS {selected}", [[r for r, _ in ranks], [n for _, n in ranks]])
        if self.gpu_columns:
            columns = ", ".join(["run_id", "rank", *sorted(self.gpu_columns)])
            work = " UNION ".join(
                f"SELECT {columns} FROM ({self._scan(table)})" for table in ("kernels", "memcpys", "memsets")
            )
            self.execute(f"CREATE TABLE selected_gpus AS {work}")
        if wheres:
            self._leave(wheres)

    def _columns_of(self, wheres: Sequence[str]) -> set[str]:
        """Return the columns that expressions name. Raises InputError for what is not one expression."""
        with closing(empty_database()) as apart:
            return {column for where in wheres for column in check_expression(apart, where, f"--where {where!r}")}

    def _leave(self, wheres: Sequence[str]) -> None:
        """Keep in `selected` the rows for which all of `wheres` hold. They run in a DuckDB that has nothing else."""
        keys = ["run_id", "rank", *sorted(self.gpu_columns)]
        gpus = "LEFT JOIN selected_gpus USING (run_id, rank)" if self.gpu_columns else ""
        rows = self.connection.sql(f"SELECT * FROM selected {gpus}").to_arrow_table()
        with closing(empty_database()) as apart:
            with registered_tables(apart, found=rows):
                apart.execute("CREATE TEMP TABLE selected AS SELECT * FROM found")
            left = set(apart.execute(f"SELECT {', '.join(keys)} FROM selected").fetchall())
            for where in wheres:
                what = f"--where {where!r}"
                select = one_select(f"SELECT {', '.join(keys)} FROM selected WHERE (\n{where}\n) IS TRUE", what)
                try:
                    left &= set(apart.execute(select).fetchall())
                except duckdb.BinderException as e:
                    other = "--where filters runs and ranks; query --filter filters the rows of a result"
                    raise InputError(f"{what}: {sentence(e)}; {other}") from e
                except duckdb.Error as e:
                    raise InputError(f"{what}: {sentence(e)}") from e
        self._leave_out(
            "(run_id::VARCHAR, rank) NOT IN (SELECT (unnest($1::VARCHAR[]), unnest($2::INTEGER[])))",
            [[r for r, *_ in left], [n for _, n, *_ in left]],
        )
        if self.gpu_columns:
            kinds = zip(keys, ("VARCHAR", *["BIGINT"] * (len(keys) - 1)), strict=True)
            listed = ", ".join(f"unnest(${at}::{kind}[]) AS {key}" for at, (key, kind) in enumerate(kinds, 1))
            same = " AND ".join(f"l.{key} IS NOT DISTINCT FROM g.{key}" for key in keys)
            self.execute(
                f"DELETE FROM selected_gpus g WHERE NOT EXISTS (FROM (SELECT {listed}) l WHERE {same})",
                [[row[at] for row in left] for at in range(len(keys))],
            )

    def _leave_out(self, condition: str, parameters: object) -> None:
        self.execute(f"DELETE FROM selected WHERE {condition}", parameters)
        self._some_left_out = True

    def _choose_passes(self) -> None:
        """Leave one timing pass of each workload in `selected`, as the class says."""
        profiler, prefer, by = self.selection.profiler, self.selection.prefer, self.selection.by
        self._choose_block()
        if profiler not in (None, "all", *PROFILERS):
            raise InputError(f"--profiler {profiler}: must be one of {', '.join(PROFILERS)} or all")
        if profiler not in (None, "all"):
            self._leave_out("profiler IS DISTINCT FROM $1", [profiler])
        both = self.selection.block == "both"
        if profiler is not None or prefer == "all" or both or {"run_id", "profiler"} & set(by) or len(self.runs) < 2:
            return
        few = self._without_twins() if prefer == "gpu" else {}
        tables = {r: s.snapshot.runs[r].tables for s, r in self.runs}
        passes: dict[str, dict[str, tuple[bool, bool, int]]] = {}
        found = self.execute(
            "SELECT DISTINCT workload_id, run_id, profiler, status FROM selected WHERE workload_id IS NOT NULL"
        ).fetchall()
        two_blocks = {workload for workload, _, name, _ in found if name == "gpu"}
        for workload, run_id, name, status in found:
            if name in TIMING:
                no_work = not any(tables[run_id].get(t) for t in ("kernels", "memcpys", "memsets", "gpu_summary"))
                # Both blocks are of one process: if that failed, it did so for both.
                failed = status == "failed" and not (name == "torch" and workload in two_blocks)
                worth = (no_work or failed, name != prefer or run_id in few, TIMING.index(name))
                known = passes.setdefault(workload, {})
                known[name] = min(worth, known.get(name, worth))
        used, unused = set(), set()
        left_out: list[tuple[str, str]] = []
        for workload, known in passes.items():
            best = min(known, key=lambda name: known[name])
            others = sorted(set(known) - {best})
            if others:
                used.add(best)
                unused.update(others)
                left_out += [(workload, other) for other in others]
        self.left_out = unused
        if used:
            self._leave_out(
                "(workload_id, profiler) IN (SELECT (unnest($1::VARCHAR[]), unnest($2::VARCHAR[])))",
                [[w for w, _ in left_out], [other for _, other in left_out]],
            )
            choice = "--block" if used | unused <= {"gpu", "torch"} else "--profiler"
            self.note = (
                f"recorded with {' and '.join([*sorted(used), *sorted(unused - used)])};"
                f" using {' or '.join(sorted(used))} only"
                f" ({choice} chooses, --by profiler shows each)"
            )
            if why := sorted(few.values()):
                self.note += f"; {why[0]}"

    def _choose_block(self) -> None:
        """Leave what `block` chooses in `selected`."""
        block = self.selection.block
        if block not in (None, *BLOCKS):
            raise InputError(f"--block {block}: must be one of {', '.join(BLOCKS)}")
        if block == "gpu":
            self._leave_out("profiler IN (SELECT unnest($1::VARCHAR[]))", [[p for p in TIMING if p != "gpu"]])
        elif block == "full":
            self._leave_out("profiler = $1", ["gpu"])

    def _without_twins(self) -> dict[str, str]:
        """Return the GPU-only blocks with too few twins (TWINS_PCT), and how many they have in a sentence."""
        blocks = [run for run in self.runs if run[0].snapshot.runs[run[1]].full]
        if not blocks:
            return {}
        twins = self._derived(["twins"], blocks).get("twins") or self._scan("twins", blocks)
        rows = self.execute(f"SELECT run_id::VARCHAR, count(*), count(full_start_ns) FROM ({twins}) GROUP BY run_id")
        counts = {run_id: (pieces, found) for run_id, pieces, found in rows.fetchall()}
        few = {}
        for _, run_id in blocks:
            pieces, found = counts.get(run_id, (0, 0))
            if 100 * found < TWINS_PCT * pieces or not pieces:
                few[run_id] = f"only {found:,} of {pieces:,} kernels, copies and fills of {run_id} have a twin"
        return few

    def _create_groups(self) -> None:
        """`run_groups`: what is selected, numbered into groups by `by`; and `runs`, a row for each run of it."""
        by = ", ".join(f'"{b}"' for b in self.selection.by)
        number = f"dense_rank() OVER (ORDER BY {by})::INTEGER" if by else "NULL::INTEGER"
        kind = "TABLE" if by else "VIEW"
        if self.gpu_columns:
            of_gpu = number if by else "1"
            self.execute(
                f"CREATE TABLE gpu_groups AS SELECT *, {of_gpu} AS run_group"
                " FROM selected JOIN selected_gpus USING (run_id, rank)"
            )
            number = "NULL::INTEGER"
        self.execute(f"CREATE {kind} run_groups AS SELECT *, {number} AS run_group FROM selected")
        columns = ", ".join(f'"{c.name}"' for c in TABLES["runs"].columns)
        self.execute(
            f"CREATE VIEW runs AS SELECT DISTINCT ON (run_id) {columns}, run_group"
            " FROM run_groups ORDER BY run_id, rank"
        )
        if not self._some_left_out:
            return
        ranks = self.execute("SELECT run_id, list(rank) FROM selected GROUP BY run_id").fetchall()
        kept = {run_id: set(found) for run_id, found in ranks}
        self.runs = [(s, r) for s, r in self.runs if r in kept]
        self._filtered = any(len(kept[r]) < len(_ranks(s, r)) for s, r in self.runs)
        if self._filtered:
            self._ranks = kept

    def create_views(self, tables: Sequence[str]) -> Iterator[str]:
        """Create a view of each stored table with the rows of the selected runs and their group; yield its name."""
        blocks = [run for run in self.runs if run[0].snapshot.runs[run[1]].full]
        with_collectives = "kernels" in tables and bool(blocks)
        derived = (DERIVED_TABLES.keys() & tables) | ({"twins"} if with_collectives else set())
        scans = self._derived(sorted(derived))
        for table in tables:
            if table == "kernel_names":
                self._create_kernel_names()
            elif table in OF_FULL_BLOCK:
                self._create_view(table, self._scan_full_blocks(OF_FULL_BLOCK[table]))
            elif table == "kernels" and with_collectives:
                twins = scans.get("twins") or self._scan("twins", blocks)
                self._create_view(table, _with_collectives(self._scan(table), twins))
            else:
                self._create_view(table, scans.get(table) or self._scan(table))
            yield table

    def _create_view(self, table: str, scan: str) -> None:
        if self.gpu_columns <= {c.name for c in TABLES[OF_FULL_BLOCK.get(table, table)].columns} and self.gpu_columns:
            same = " AND ".join(f"g.{c} IS NOT DISTINCT FROM t.{c}" for c in ("run_id", "rank", *self.gpu_columns))
            sql = (
                f"SELECT t.*, g.run_group FROM ({scan}) t SEMI JOIN run_groups USING (run_id, rank)"
                f" LEFT JOIN gpu_groups g ON {same}"
            )
        elif self.selection.by or self._filtered:
            sql = f"SELECT t.*, g.run_group FROM ({scan}) t JOIN run_groups g USING (run_id, rank)"
        else:
            sql = f"SELECT *, NULL::INTEGER AS run_group FROM ({scan})"
        self.execute(f"CREATE VIEW {table} AS {sql}")

    def _create_kernel_names(self) -> None:
        """`kernel_names` as stored, or classified anew where the rules have changed since."""
        stale = [(s, r) for s, r in self.runs if s.snapshot.runs[r].rules != kernel_names.rules_digest()]
        if not stale:
            self.execute(f"CREATE VIEW kernel_names AS {self._scan('kernel_names')}")
            return
        stored = self.execute(f"SELECT run_id, name FROM ({self._scan('kernel_names')})").fetchall()
        columns = [c.name for c in TABLES["kernel_names"].columns]
        self.execute(f"CREATE TABLE kernel_names AS {_no_rows('kernel_names')}")
        rows = [row for run_id, name in stored for row in kernel_names.rows(run_id, [name])]
        arrays = ", ".join(f"unnest(${i + 1})" for i in range(len(columns)))
        self.execute(f"INSERT INTO kernel_names SELECT {arrays}", [[row[c] for row in rows] for c in columns])

    def _derived(self, tables: Sequence[str], runs: Sequence[tuple[Store, str]] | None = None) -> dict[str, str]:
        """Compute derived tables anew for runs whose stored ones have another version; return a SELECT for each.

        `runs`: by default all.
        """
        runs = self.runs if runs is None else runs
        stale = [run for run in runs if is_stale(run[0].snapshot.runs, run[1])]
        if not stale:
            return {}
        current = [run for run in runs if run not in stale]
        for table in tables:
            self.execute(f"CREATE OR REPLACE TABLE {table}_derived AS {self._scan(table, current)}")
        for store, run_id in stale:
            for rank in sorted(self._ranks.get(run_id, _ranks(store, run_id))):
                full = store.snapshot.runs[run_id].full
                read = with_kernel_names(partial(self._of_rank, (store, run_id), rank))
                found = derive(read, tables.__contains__, full in store.snapshot.runs)
                for table in tables:
                    with registered_tables(self.connection, derived_rows=found[table]):
                        self.execute(
                            f"INSERT INTO {table}_derived BY NAME"
                            " SELECT $1::run_key AS run_id, $2::INTEGER AS rank, * FROM derived_rows",
                            [run_id, rank],
                        )
        return {table: f"SELECT * FROM {table}_derived" for table in tables}

    def _of_rank(self, run: tuple[Store, str], rank: int, table: str, columns: Sequence[str]) -> pa.Table:
        """Stored columns of a rank as they are in its Parquet file: with dictionary-encoded texts."""
        import pyarrow as pa

        if table.startswith(FULL):
            return self._of_full_block(run, rank, table.removeprefix(FULL), columns)
        listed = ", ".join(f'"{c}"' for c in columns)
        schema = pa.schema([arrow_schema(TABLES[table]).field(c) for c in columns])
        try:
            rows = self.connection.sql(f"SELECT {listed} FROM ({self._scan(table, [run])}) WHERE rank = {rank}")
            return rows.to_arrow_table().cast(schema)
        except duckdb.Error as e:
            raise failure(e, str(self)) from e

    def _of_full_block(self, run: tuple[Store, str], rank: int, table: str, columns: Sequence[str]) -> pa.Table:
        """Columns of a rank in the full block of a GPU-only block; no rows without one."""
        store, run_id = run
        full = store.snapshot.runs[run_id].full
        if full not in store.snapshot.runs:
            return row_schema(TABLES[table]).empty_table().select([*columns])
        if table not in DERIVED_TABLES or not is_stale(store.snapshot.runs, full):
            return self._of_rank((store, full), rank, table, columns)
        read = with_kernel_names(partial(self._of_rank, (store, full), rank))
        return derive(read, {table}.__contains__)[table].select([*columns])

    def _scan(self, table: str, runs: Sequence[tuple[Store, str]] | None = None) -> str:
        """SELECT over the Parquet files of a table of these runs, by default all; an empty one of the right types where
        there are none.

        Columns that an older version did not write are NULL.
        """
        self._scanned.add(table)
        selects = []
        ranks = {r for found in self._ranks.values() for r in found} if table not in RUN_TABLES else set()
        # The least and greatest rank of a row group say whether it is read at all.
        only = f" WHERE rank BETWEEN {min(ranks)} AND {max(ranks)}" if ranks else ""
        runs = self.runs if runs is None else runs
        of_one = runs[0][1] if len(runs) == 1 else None
        by_store: dict[Store, list[TableFile]] = {}
        for store, _, found in self._stored(table, runs):
            by_store.setdefault(store, []).extend(found)
        for store, found in by_store.items():
            verify(store, found)
        for parser, files in self.files(table, runs).items():
            listed = ", ".join(text_literal(self.name(f)) for f in files)
            source = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = false)"
            there = None if parser == PARSER_VERSION else set(self.connection.sql(f"SELECT * FROM {source}").columns)
            selects.append(f"SELECT {_columns(table, there, of_one, 'file_row_number')} FROM {source}{only}")
        return " UNION ALL ".join(selects) or _no_rows(table)

    def _scan_full_blocks(self, table: str) -> str:
        """SELECT of the rows that the full block of each GPU-only block has, with the run_id of the latter."""
        selects = []
        for store, run_id in self.runs:
            full = store.snapshot.runs[run_id].full
            if full in store.snapshot.runs and store.snapshot.runs[full].tables.get(table):
                rows = self._scan(table, [(store, full)])
                selects.append(f"SELECT * REPLACE ({text_literal(run_id)}::run_key AS run_id) FROM ({rows})")
        return " UNION ALL ".join(selects) or _no_rows(table)

    def files(self, table: str, runs: Sequence[tuple[Store, str]] | None = None) -> dict[int, list[str]]:
        """Parquet files of a table of these runs, by default all, by the version of the parser that wrote them."""
        files: dict[int, list[str]] = {}
        for store, run_id, found in self._stored(table, self.runs if runs is None else runs):
            paths = store.for_readers(found)
            if store.filesystem:
                self._systems |= dict.fromkeys(paths, store.filesystem)
            files.setdefault(store.snapshot.runs[run_id].parser, []).extend(paths)
        return files

    def _stored(self, table: str, runs: Sequence[tuple[Store, str]]) -> Iterator[tuple[Store, str, list[TableFile]]]:
        """The files of a table that have rows of what is selected, run by run."""
        for store, run_id in runs:
            found = store.snapshot.runs[run_id].tables.get(table, [])
            if run_id in self._ranks and table not in RUN_TABLES:
                found = [f for f in found if not self._ranks[run_id].isdisjoint(f.ranks)]
            if found:
                yield store, run_id, found

    def readable_files(self) -> set[str]:
        """Return the Parquet files of all tables, which DuckDB may open."""
        files = {file for table in TABLES for found in self.files(table).values() for file in found}
        # DuckDB opens a file whose name reads as a pattern under its name, too.
        return files | {literal_path(f) for f in files}

    def name(self, file: str) -> str:
        """Return what DuckDB opens a file by."""
        return literal_path(file) if self._file_system is None else self._file_system.add(file, self._systems.get(file))


def _with_collectives(kernels: str, twins: str) -> str:
    """SELECT of kernels in which those of a GPU-only block have what PyTorch said of the collective of their twin."""
    columns = ", ".join(
        f'coalesce(k."{c}", t."{c}") AS "{c}"' if c in COLLECTIVE else f'k."{c}"' for c in _names("kernels")
    )
    same = " AND ".join(f"t.{c} IS NOT DISTINCT FROM k.{c}" for c in ("device", "stream", "correlation_id"))
    return (
        f"SELECT {columns} FROM ({kernels}) k LEFT JOIN (SELECT * FROM ({twins}) WHERE collective IS NOT NULL) t"
        f" ON t.run_id = k.run_id AND t.rank = k.rank AND t.start_ns = k.start_ns AND {same}"
    )


def _names(table: str) -> list[str]:
    return [c.name for c in TABLES[table].columns]


def _no_rows(table: str) -> str:
    return f"SELECT {_columns(table, ())} WHERE false"


def _columns(
    table: str, there: Container[str] | None, run_id: str | None = None, file_row: str = "NULL::BIGINT"
) -> str:
    """All columns of a scan, each as `_selected` has it; `file_row` where the table has that."""
    names = [_selected(c, there, run_id) for c in TABLES[table].columns]
    return ", ".join([*names, f"{file_row} AS file_row"] if table in _IN_FILE_ORDER else names)


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
