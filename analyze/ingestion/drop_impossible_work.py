"""Remove GPU work that cannot have run as its file says from the staged Parquet files, and report the loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analyze.derive.impossible_work import (
    BEFORE_NS,
    CALL_COLUMNS,
    FAR_FROM_ZERO_NS,
    WORK_COLUMNS,
    impossible_work,
    read_calls,
)
from analyze.derive.numpy_columns import Ints, Mask, equals, ints
from analyze.ingestion.table_files import RowGroupWriter
from analyze.sources.interface import FileReport, SourceFile

_TABLES = {"kernels": "name", "memcpys": "kind", "memsets": "dst_memory"}
"""Tables of GPU work, and the column that describes a row."""
_PRODUCERS = {"chrome": "torch.profiler", "nsys": "Nsight Systems", "nvprof": "nvprof"}
"""Programs that write files, by the first word of their kind."""
_CPU_TABLES = ("cuda_calls", "cpu_ops", "ranges", "memory_events")
_LONGEST_NAME = 80


class _Staged(NamedTuple):
    """The staged rows of a table; `first`: index of the first among all GPU work of the rank."""

    table: str
    path: Path
    first: int
    rows: int


def drop_impossible_work(file: SourceFile, written: dict[tuple[str, int], Path], report: FileReport) -> None:
    """Check the GPU work of each rank of a file; correct `written` and the report for what is removed."""
    for rank in sorted({rank for _, rank in written}):
        _drop_zero_times(file, rank, written, report)
    ranks = sorted({rank for table, rank in written if table in _TABLES})
    for rank in ranks:
        staged: list[_Staged] = []
        parts: list[pa.Table] = []
        for table in _TABLES:
            if path := written.get((table, rank)):
                parts.append(_work(table, path))
                staged.append(_Staged(table, path, sum(p.num_rows for p in parts[:-1]), parts[-1].num_rows))
        work = pa.concat_tables(parts)
        calls = read_calls(work, _row_groups(written.get(("cuda_calls", rank)), CALL_COLUMNS))

        def names(rows: Ints, staged: list[_Staged] = staged) -> Ints:
            return np.concatenate([_codes(one) for one in staged])[rows]

        if found := impossible_work(work, calls, report.zero_ns, names, _recorded_from(rank, work, written)):
            lost = int(sum(np.count_nonzero(mask) for mask in found.values()))
            of_rank = f" of rank {rank}" if len(ranks) > 1 else ""
            producer = _PRODUCERS.get(file.kind.partition("_")[0], file.kind)
            reasons = "; ".join(
                f"{np.count_nonzero(mask):,} {reason} ({_example(work, mask, staged, report.zero_ns)})"
                for reason, mask in found.items()
            )
            report.warnings.append(
                f"{file.path.name}: {lost:,} of {work.num_rows:,} pieces of GPU work{of_rank} cannot have run as"
                f" {producer} wrote them; they are lost and in no sum: {reasons}"
            )
            report.lost += lost
            false = np.logical_or.reduce(list(found.values()))
            for one in staged:
                _remove(one, false[one.first : one.first + one.rows], written, report, rank)


def _drop_zero_times(file: SourceFile, rank: int, written: dict[tuple[str, int], Path], report: FileReport) -> None:
    """Remove the CPU events of a rank at time 0 of the file if all other times are far from it."""
    paths = {table: path for (table, own), path in written.items() if own == rank and table in _CPU_TABLES}
    # The statistics of row groups say that nearly all files have no such events.
    if not any(report.zero_ns == first for path in paths.values() for first in _first_starts(path)):
        return
    starts = {table: ints(_read(path, ("start_ns",)), "start_ns") for table, path in paths.items()}
    others = np.concatenate([start[start != report.zero_ns] for start in starts.values()])
    if not len(others) or np.abs(others - report.zero_ns).min() <= FAR_FROM_ZERO_NS:
        return
    lost = 0
    for table, start in starts.items():
        zero = start == report.zero_ns
        lost += int(np.count_nonzero(zero))
        _remove(_Staged(table, paths[table], 0, len(zero)), zero, written, report, rank)
    report.lost += lost
    report.warnings.append(
        f"{file.path.name}: {lost:,} CPU events of rank {rank} start at time 0 of the file, far from all others;"
        " they are lost and in no sum"
    )


def _recorded_from(rank: int, work: pa.Table, written: Mapping[tuple[str, int], Path]) -> int | None:
    """Return when the recording of a rank began: the start of its first CPU event; None if no work is that early.

    Only torch.profiler with steps shows it: the first ProfilerStep# begins with the recording.
    """
    ranges = written.get(("ranges", rank))
    if ranges is None or not work.num_rows:
        return None
    paths = [path for table in ("cuda_calls", "cpu_ops") if (path := written.get((table, rank)))]
    firsts = [first for path in paths for first in _first_starts(path)]
    # Nearly all work is later than that, and the ranges need not be read.
    if firsts and ints(work, "start_ns").min() >= min(firsts) - BEFORE_NS:
        return None
    columns = _read(ranges, ("origin", "start_ns"))
    if not equals(columns["origin"], "profiler_step").any():
        return None
    on_cpu = ints(columns, "start_ns")[~equals(columns["origin"], "gpu_annotation")]
    return min([*firsts, int(on_cpu.min())])


def _first_starts(path: Path) -> Iterator[int]:
    """Yield the smallest start of each row group."""
    metadata = pq.read_metadata(path)
    column = metadata.schema.to_arrow_schema().get_field_index("start_ns")
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            yield statistics.min


def _example(work: pa.Table, mask: Mask, staged: Iterable[_Staged], zero_ns: int) -> str:
    """Describe the longest of some rows."""
    rows = np.flatnonzero(mask)
    at = int(rows[np.argmax(pc.fill_null(work.column("dur_ns"), -1).to_numpy()[rows])])
    one = next(s for s in staged if s.first <= at < s.first + s.rows)
    column = _TABLES[one.table]
    name = _read(one.path, (column,)).column(column)[at - one.first].as_py()
    what = {"kernels": "", "memcpys": "Memcpy ", "memsets": "Memset "}[one.table] + str(name or "")
    what = what if len(what) <= _LONGEST_NAME else what[:_LONGEST_NAME] + "..."
    row = work.slice(at, 1).to_pylist()[0]
    length = "no length" if row["dur_ns"] is None else f"{row['dur_ns'] / 1e6:,.3f} ms"
    place = f"GPU {row['device']}, stream {row['stream']}, ts {(row['start_ns'] - zero_ns) / 1e3:.3f} us"
    return f"such as {what}: {length}, {place}"


def _remove(one: _Staged, false: Mask, written: dict[tuple[str, int], Path], report: FileReport, rank: int) -> None:
    """Rewrite a staged file without some of its rows."""
    left = one.rows - int(np.count_nonzero(false))
    if left == one.rows:
        return
    report.rows[one.table, rank] = left
    if not left:
        del written[one.table, rank]
        return
    checked = one.path.with_suffix(".checked")
    first = 0
    with RowGroupWriter(checked, pq.read_schema(one.path)) as writer:
        for part in _row_groups(one.path, None):
            writer.write(part.filter(pa.array(~false[first : first + part.num_rows])))
            first += part.num_rows
    checked.replace(one.path)


def _codes(one: _Staged) -> Ints:
    """Return numbers that identify what each row of a table is."""
    column = _read(one.path, (_TABLES[one.table],)).unify_dictionaries().column(0).combine_chunks()
    codes: Ints = pc.fill_null(column.indices, -1).to_numpy().astype(np.int64)
    return codes * len(_TABLES) + list(_TABLES).index(one.table)


def _work(table: str, path: Path) -> pa.Table:
    """Read WORK_COLUMNS of a table. Copies of managed memory get no stream: they run during the kernel that needs
    them."""
    if table != "memcpys":
        return _read(path, WORK_COLUMNS)
    copies = _read(path, (*WORK_COLUMNS, "kind"))
    unified = pc.starts_with(copies.column("kind").cast(pa.string()), "Unified")
    stream = pc.if_else(pc.fill_null(unified, False), None, copies.column("stream"))
    return copies.set_column(copies.schema.get_field_index("stream"), "stream", stream).select(WORK_COLUMNS)


def _read(path: Path, columns: Iterable[str]) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read([*columns])


def _row_groups(path: Path | None, columns: Iterable[str] | None) -> Iterator[pa.Table]:
    """Yield the row groups of a file; nothing without a file."""
    if path is None:
        return
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, None if columns is None else [*columns])
