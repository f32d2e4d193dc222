"""The runs and ranks that a `Selection` selects, and which pass of a workload is read."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import closing

import duckdb

from analyze.errors import InputError
from analyze.query.databases import empty_database, registered_tables
from analyze.query.literals import text_literal
from analyze.query.selection import BLOCKS, GPU_COLUMNS, PROFILERS, TIMING, Selection, check_by
from analyze.query.sql_checks import check_expression, one_select, sentence
from analyze.query.table_scans import TableScans, column_names, ranks_of
from analyze.store.store import Store

TWINS_PCT = 99
"""Share of the work of a GPU-only block that must have a twin for the block to be read."""
SLOWER = 1.2
"""A GPU-only block is not read if its steps take more than this many times as long as steps of the full block."""


class SelectedRuns:
    """The runs and ranks that a `Selection` selects, as the tables `runs` and `run_groups` of a DuckDB.

    A workload that was recorded under several profilers has a run for each pass. One timing pass of each workload is
    read, so that no work counts twice: the first of TIMING that `where` selects and that has GPU work, or `prefer` if
    it is among them. All passes are read with `prefer` "all", and if `by` has run_id or profiler. With `profiler`, only
    runs that were recorded under it are read; "all" for all. `block` excludes the GPU-only block or the other timing
    passes. A GPU-only block is not preferred if too little of its work has a twin, or if its
    steps take longer than those of the full block.

    If `where` or `by` names columns of GPU work, `run_group` of work is NULL if the work is not selected, and
    `run_group` of other rows is that of their rank. Queries that declare these columns have rows of GPU work only.
    """

    def __init__(self, scans: TableScans, selection: Selection):
        self.scans = scans
        self.selection = selection
        self.note = ""
        """Which passes were excluded, in sentences."""
        self.excluded: set[str] = set()
        """Profilers of these passes."""
        self.gpu_columns: set[str] = set()
        """Columns of GPU work that `where` and `by` name."""
        self._some_excluded = False
        self._create_run_keys()
        self._create_selected()
        self._choose_passes()
        self._create_groups()

    def _create_run_keys(self) -> None:
        """Create the type of run_id. Joins and groups on a number take half the time and memory of those on text."""
        keys = sorted(r for _, r in self.scans.runs)
        listed = ", ".join(map(text_literal, keys))
        self.scans.execute(f"CREATE TYPE run_key AS ENUM ({listed})")

    def _create_selected(self) -> None:
        """Create the table `selected`, the runs and ranks for which `where` holds; and `selected_gpus`, their GPUs or
        streams, if `where` or `by` names them."""
        wheres = self.selection.where
        check_by(self.selection.by)
        self.gpu_columns = GPU_COLUMNS.keys() & {*self.selection.by, *self._columns_of(wheres)}
        # A join, because a list of all ranks in the SELECT would be copied for each file.
        ranks = [(run_id, rank) for store, run_id in self.scans.runs for rank in ranks_of(store, run_id)]
        listed = "SELECT unnest($1::VARCHAR[])::run_key AS run_id, unnest($2::INTEGER[]) AS rank"
        selected = f"SELECT r.*, n.rank FROM ({self.scans.scan('runs')}) r JOIN ({listed}) n USING (run_id)"
        if wheres or "node" in self.selection.by:  # this join doubles the time
            hosts = f"SELECT run_id, rank, host AS node FROM ({self.scans.scan('rank_hosts')})"
            selected = f"SELECT * FROM ({selected}) LEFT JOIN ({hosts}) USING (run_id, rank)"
        self.scans.execute(f"CREATE TABLE selected AS {selected}", [[r for r, _ in ranks], [n for _, n in ranks]])
        if self.gpu_columns:
            columns = ", ".join(["run_id", "rank", *sorted(self.gpu_columns)])
            work = " UNION ".join(
                f"SELECT {columns} FROM ({self.scans.scan(table)})" for table in ("kernels", "memcpys", "memsets")
            )
            self.scans.execute(f"CREATE TABLE selected_gpus AS {work}")
        if wheres:
            self._apply_where(wheres)

    def _columns_of(self, wheres: Sequence[str]) -> set[str]:
        """Return the columns that expressions name. Raises InputError if one is not an expression."""
        with closing(empty_database()) as database:
            return {column for where in wheres for column in check_expression(database, where, f"--where {where!r}")}

    def _apply_where(self, wheres: Sequence[str]) -> None:
        """Delete the rows of `selected` for which not all of `wheres` hold. They run in a DuckDB without other data."""
        keys = ["run_id", "rank", *sorted(self.gpu_columns)]
        gpus = "LEFT JOIN selected_gpus USING (run_id, rank)" if self.gpu_columns else ""
        rows = self.scans.connection.sql(f"SELECT * FROM selected {gpus}").to_arrow_table()
        with closing(empty_database()) as database:
            with registered_tables(database, found=rows):
                database.execute("CREATE TEMP TABLE selected AS SELECT * FROM found")
            left = set(database.execute(f"SELECT {', '.join(keys)} FROM selected").fetchall())
            for where in wheres:
                what = f"--where {where!r}"
                select = one_select(f"SELECT {', '.join(keys)} FROM selected WHERE (\n{where}\n) IS TRUE", what)
                try:
                    left &= set(database.execute(select).fetchall())
                except duckdb.BinderException as e:
                    other = "--where filters runs and ranks; query --filter filters the rows of a result"
                    raise InputError(f"{what}: {sentence(e)}; {other}") from e
                except duckdb.Error as e:
                    raise InputError(f"{what}: {sentence(e)}") from e
        self._exclude(
            "(run_id::VARCHAR, rank) NOT IN (SELECT (unnest($1::VARCHAR[]), unnest($2::INTEGER[])))",
            [[r for r, *_ in left], [n for _, n, *_ in left]],
        )
        if self.gpu_columns:
            kinds = zip(keys, ("VARCHAR", *["BIGINT"] * (len(keys) - 1)), strict=True)
            listed = ", ".join(f"unnest(${at}::{kind}[]) AS {key}" for at, (key, kind) in enumerate(kinds, 1))
            same = " AND ".join(f"l.{key} IS NOT DISTINCT FROM g.{key}" for key in keys)
            self.scans.execute(
                f"DELETE FROM selected_gpus g WHERE NOT EXISTS (FROM (SELECT {listed}) l WHERE {same})",
                [[row[at] for row in left] for at in range(len(keys))],
            )

    def _exclude(self, condition: str, parameters: object) -> None:
        self.scans.execute(f"DELETE FROM selected WHERE {condition}", parameters)
        self._some_excluded = True

    def _choose_passes(self) -> None:
        """Leave one timing pass of each workload in `selected`."""
        profiler, prefer, by = self.selection.profiler, self.selection.prefer, self.selection.by
        self._choose_block()
        if profiler not in (None, "all", *PROFILERS):
            raise InputError(f"--profiler {profiler}: must be one of {', '.join(PROFILERS)} or all")
        if profiler not in (None, "all"):
            self._exclude("profiler IS DISTINCT FROM $1", [profiler])
        both = self.selection.block == "both"
        several = len(self.scans.runs) > 1
        if profiler is not None or prefer == "all" or both or {"run_id", "profiler"} & set(by) or not several:
            return
        unusable = self._unusable_blocks() if prefer == "gpu" else {}
        used: set[str] = set()
        excluded: list[tuple[str, str]] = []
        for workload, passes in self._ranked_passes(unusable).items():
            best, *others = sorted(passes, key=lambda name: passes[name])
            if others:
                used.add(best)
                excluded += [(workload, other) for other in others]
        if not used:
            return
        self.excluded = {name for _, name in excluded}
        self._exclude(
            "(workload_id, profiler) IN (SELECT (unnest($1::VARCHAR[]), unnest($2::VARCHAR[])))",
            [[w for w, _ in excluded], [name for _, name in excluded]],
        )
        choice = "--block" if used | self.excluded <= {"gpu", "torch"} else "--profiler"
        self.note = (
            f"recorded with {' and '.join([*sorted(used), *sorted(self.excluded - used)])};"
            f" using {' or '.join(sorted(used))} only"
            f" ({choice} chooses, --by profiler shows each)"
        )
        if why := sorted(unusable.values()):
            self.note += f"; {why[0]}"

    def _ranked_passes(self, unusable: Container[str]) -> dict[str, dict[str, tuple[bool, bool, int]]]:
        """Return the rank of each timing pass of each workload, by profiler: the smallest is read."""
        tables = {r: s.snapshot.runs[r].tables for s, r in self.scans.runs}
        found = self.scans.execute(
            "SELECT DISTINCT workload_id, run_id, profiler, status FROM selected WHERE workload_id IS NOT NULL"
        ).fetchall()
        two_blocks = {workload for workload, _, name, _ in found if name == "gpu"}
        passes: dict[str, dict[str, tuple[bool, bool, int]]] = {}
        for workload, run_id, name, status in found:
            if name in TIMING:
                no_work = not any(tables[run_id].get(t) for t in ("kernels", "memcpys", "memsets", "gpu_summary"))
                # Both blocks are of one process: if that failed, it did so for both.
                failed = status == "failed" and not (name == "torch" and workload in two_blocks)
                rank = (no_work or failed, name != self.selection.prefer or run_id in unusable, TIMING.index(name))
                known = passes.setdefault(workload, {})
                known[name] = min(rank, known.get(name, rank))
        return passes

    def _choose_block(self) -> None:
        """Exclude the blocks that `block` does not choose."""
        block = self.selection.block
        if block not in (None, *BLOCKS):
            raise InputError(f"--block {block}: must be one of {', '.join(BLOCKS)}")
        if block == "gpu":
            self._exclude("profiler IN (SELECT unnest($1::VARCHAR[]))", [[p for p in TIMING if p != "gpu"]])
        elif block == "full":
            self._exclude("profiler = $1", ["gpu"])

    def _unusable_blocks(self) -> dict[str, str]:
        """Return the GPU-only blocks that the full block answers for, each with a sentence that says why."""
        blocks = [run for run in self.scans.runs if run[0].snapshot.runs[run[1]].full]
        return self._slow_blocks(blocks) | self._without_twins(blocks) if blocks else {}

    def _slow_blocks(self, blocks: Sequence[tuple[Store, str]]) -> dict[str, str]:
        """Return the blocks whose steps take longer than steps of the full block (SLOWER); the slowest rank counts.

        CUPTI takes 20 to 30 ms for the buffer of each thread that launches, so new threads in each step make it long.
        """
        full = {run_id: store.snapshot.runs[run_id].full for store, run_id in blocks}
        runs = [run for run in self.scans.runs if run[1] in {*full, *full.values()}]
        rows = self.scans.execute(
            "SELECT run_id::VARCHAR, max(step_s) FROM ("
            f"SELECT run_id, rank, avg(step_s) AS step_s FROM ({self.scans.scan('step_metrics', runs)})"
            " WHERE NOT coalesce(warmup, false) GROUP BY run_id, rank) GROUP BY run_id"
        )
        step_s = dict(rows.fetchall())
        slow = {}
        for run_id, its_full in full.items():
            ours, theirs = step_s.get(run_id), step_s.get(its_full)
            if ours and theirs and ours > SLOWER * theirs:
                slow[run_id] = (
                    f"a step of {run_id} takes {1000 * ours:.1f} ms, one of the full block {1000 * theirs:.1f} ms"
                )
        return slow

    def _without_twins(self, blocks: Sequence[tuple[Store, str]]) -> dict[str, str]:
        """Return the blocks with too few twins (TWINS_PCT), each with a sentence that has the numbers."""
        twins = self.scans.scan("twins", blocks)
        rows = self.scans.execute(
            f"SELECT run_id::VARCHAR, count(*), count(full_start_ns) FROM ({twins}) GROUP BY run_id"
        )
        counts = {run_id: (pieces, found) for run_id, pieces, found in rows.fetchall()}
        few = {}
        for _, run_id in blocks:
            pieces, found = counts.get(run_id, (0, 0))
            if 100 * found < TWINS_PCT * pieces or not pieces:
                few[run_id] = f"only {found:,} of {pieces:,} kernels, copies and fills of {run_id} have a twin"
        return few

    def _create_groups(self) -> None:
        """Create `run_groups`, the selected ranks with the number of their group, and `runs`, the selected runs."""
        by = ", ".join(f'"{b}"' for b in self.selection.by)
        number = f"dense_rank() OVER (ORDER BY {by})::INTEGER" if by else "NULL::INTEGER"
        kind = "TABLE" if by else "VIEW"
        if self.gpu_columns:
            of_gpu = number if by else "1"
            self.scans.execute(
                f"CREATE TABLE gpu_groups AS SELECT *, {of_gpu} AS run_group"
                " FROM selected JOIN selected_gpus USING (run_id, rank)"
            )
            number = "NULL::INTEGER"
        self.scans.execute(f"CREATE {kind} run_groups AS SELECT *, {number} AS run_group FROM selected")
        columns = ", ".join(f'"{c}"' for c in column_names("runs"))
        self.scans.execute(
            f"CREATE VIEW runs AS SELECT DISTINCT ON (run_id) {columns}, run_group"
            " FROM run_groups ORDER BY run_id, rank"
        )
        if not self._some_excluded:
            return
        ranks = self.scans.execute("SELECT run_id, list(rank) FROM selected GROUP BY run_id").fetchall()
        selected = {run_id: set(found) for run_id, found in ranks}
        self.scans.select(selected)
