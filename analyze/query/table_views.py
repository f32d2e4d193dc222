"""Views of the stored tables, with the rows of the selected runs and ranks and the group of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyze.derive.twins import COLLECTIVE
from analyze.query.literals import text_literal
from analyze.query.selected_runs import SelectedRuns
from analyze.query.table_scans import TableScans, column_names, no_rows

_OF_FULL = ("captured_ops", "captured_ranges", "cpu_ops", "kernels", "process_groups", "ranges")
OF_FULL_BLOCK = {f"full_{table}": table for table in _OF_FULL}
"""Views that blocks of SQL read: rows of the full block of each GPU-only block, with the run_id of the latter."""


def create_views(selected: SelectedRuns, tables: Sequence[str]) -> Iterator[str]:
    """Create a view of each stored table; yield its name."""
    scans = selected.scans
    blocks = [run for run in scans.runs if run[0].snapshot.runs[run[1]].full]
    with_collectives = "kernels" in tables and bool(blocks)
    for table in tables:
        if table == "kernel_names":
            scans.execute(f"CREATE VIEW kernel_names AS {scans.scan('kernel_names')}")
        elif table in OF_FULL_BLOCK:
            _create_view(selected, table, _scan_full_blocks(scans, OF_FULL_BLOCK[table]))
        elif table == "kernels" and with_collectives:
            _create_view(selected, table, _with_collectives(scans.scan(table), scans.scan("twins", blocks)))
        else:
            _create_view(selected, table, scans.scan(table))
        yield table


def _create_view(selected: SelectedRuns, table: str, scan: str) -> None:
    of_gpus = selected.gpu_columns
    if of_gpus and of_gpus <= set(column_names(OF_FULL_BLOCK.get(table, table))):
        same = " AND ".join(f"g.{c} IS NOT DISTINCT FROM t.{c}" for c in ("run_id", "rank", *of_gpus))
        sql = (
            f"SELECT t.*, g.run_group FROM ({scan}) t SEMI JOIN run_groups USING (run_id, rank)"
            f" LEFT JOIN gpu_groups g ON {same}"
        )
    elif selected.selection.by or selected.scans.ranks:
        sql = f"SELECT t.*, g.run_group FROM ({scan}) t JOIN run_groups g USING (run_id, rank)"
    else:
        sql = f"SELECT *, NULL::INTEGER AS run_group FROM ({scan})"
    selected.scans.execute(f"CREATE VIEW {table} AS {sql}")


def _scan_full_blocks(scans: TableScans, table: str) -> str:
    """Return a SELECT of the rows of the full block of each GPU-only block, with the run_id of the GPU-only block."""
    selects = []
    for store, run_id in scans.runs:
        full = store.snapshot.runs[run_id].full
        if full in store.snapshot.runs and store.snapshot.runs[full].tables.get(table):
            rows = scans.scan(table, [(store, full)])
            selects.append(f"SELECT * REPLACE ({text_literal(run_id)}::run_key AS run_id) FROM ({rows})")
    return " UNION ALL ".join(selects) or no_rows(table)


def _with_collectives(kernels: str, twins: str) -> str:
    """Return a SELECT of kernels; those of a GPU-only block get the collective columns of their twins."""
    columns = ", ".join(
        f'coalesce(k."{c}", t."{c}") AS "{c}"' if c in COLLECTIVE else f'k."{c}"' for c in column_names("kernels")
    )
    same = " AND ".join(f"t.{c} IS NOT DISTINCT FROM k.{c}" for c in ("device", "stream", "correlation_id"))
    return (
        f"SELECT {columns} FROM ({kernels}) k LEFT JOIN (SELECT * FROM ({twins}) WHERE collective IS NOT NULL) t"
        f" ON t.run_id = k.run_id AND t.rank = k.rank AND t.start_ns = k.start_ns AND {same}"
    )
