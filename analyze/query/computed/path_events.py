"""What ranks did that their critical paths go along: tables, with a row for each thing and as few columns as can be.

Work and the call that launched it, and calls and whether they launched any, are brought together here by their ids: for
a join, DuckDB would make a hash table of all calls, which is what took longest of a critical path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.query.computed.call_paths import dense, pairs
from analyze.query.computed.in_turn import ROWS_READ
from analyze.query.computed.nesting import by_number, in_order
from analyze.query.computed.path_walk import (
    COPIES,
    SYNCHRONIZES,
    Rank,
    before_on_stream,
    equal_runs,
    integers,
    stream_numbers,
)
from analyze.query.computed.places import UNKNOWN, Among, Places
from analyze.query.literals import OF_RANKS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FEW_THREADS = 4
_TIMES = ["process", "tid", "start_ns", "end_ns"]

_OfRanks = Callable[[int], "pa.Table"]
"""The rows of a process."""

# There are millions of them and few texts, which are asked for where the path goes.
_TEXTS = """
CREATE TYPE {table}_class AS ENUM ('communication', 'copy', 'kernel');
CREATE TYPE {table}_call AS ENUM (SELECT DISTINCT name FROM cuda_calls WHERE name IS NOT NULL ORDER BY name);
CREATE TYPE {table}_work AS ENUM (
    SELECT short_name AS name FROM kernel_names WHERE short_name IS NOT NULL
    UNION
    SELECT name FROM gpu_work WHERE name IS NOT NULL
    UNION
    SELECT unnest(['kernel', 'memcpy', 'memset'])
    ORDER BY name
);
"""
_WORK = """
WITH _work AS (
    SELECT * FROM linked_to_ops('gpu_work') WHERE true /* of these ranks */
)
SELECT
    p.process, w.device, w.stream, coalesce(n.short_name, w.name, w.kind)::{table}_work AS name, w.correlation_id,
    w.op_id,
    (
        CASE WHEN n.family = 'communication' THEN 'communication' WHEN w.kind = 'kernel' THEN 'kernel' ELSE 'copy' END
    )::{table}_class AS class,
    w.start_ns, w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) AS end_ns
FROM _work w
JOIN path_ranks p ON p.run_id = w.run_id AND p.rank = w.rank
LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
"""

# What keeps a thread busy: operators, calls that launch or wait. Those that only ask (cudaEventQuery) do not.
_OPS = """
SELECT process, tid, start_ns, start_ns + dur_ns AS end_ns
FROM cpu_ops JOIN path_ranks USING (run_id, rank)
WHERE tid IS NOT NULL AND dur_ns IS NOT NULL AND true /* of these ranks */
"""
_CALLS = """
SELECT
    process, tid, start_ns, start_ns + dur_ns AS end_ns, name::{table}_call AS name, correlation_id,
    api = 'driver' AS in_driver
FROM cuda_calls JOIN path_ranks USING (run_id, rank)
WHERE api <> 'sync' AND true /* of these ranks */
"""
_ROLES = "SELECT name, role FROM api_roles WHERE role IN ('copy', 'copy_async', 'sync', 'stream_wait')"
_SHARED = """
SELECT process, correlation_id
FROM repeated_correlation_ids JOIN path_ranks USING (run_id, rank)
WHERE NOT is_call
"""

_MAKES_WAIT = COPIES + 1
_WAYS = {"sync": SYNCHRONIZES, "copy": COPIES, "copy_async": COPIES, "stream_wait": _MAKES_WAIT}
"""What calls with these roles do, in one number."""


class Events(NamedTuple):
    """What some ranks did."""

    work: _OfRanks
    launches: _OfRanks
    waits: _OfRanks
    ops: _OfRanks
    calls: _OfRanks
    blocking: _OfRanks

    def rank(self, process: int) -> Rank:
        """One of them, for the walk."""
        with ThreadPoolExecutor(1) as beside:
            busy = beside.submit(_busy, self.ops(process), self.calls(process))
            work = _in_turn(_with_launches(self.work(process), self.launches(process)), self.waits(process))
            return Rank(work, busy.result(), self.blocking(process))


def create_types(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the types of the texts that there are, for a table."""
    connection.execute(_TEXTS.format(table=table))


def read(connection: duckdb.DuckDBPyConnection, table: str, only: str) -> Events:
    """What the ranks of the table path_ranks did for which the condition holds."""

    def sql(text: str) -> duckdb.DuckDBPyRelation:
        return connection.sql(text.format(table=table).replace(OF_RANKS, only))

    work = sql(_WORK).to_arrow_table()
    launched = _Ids(work)
    shared = connection.sql(_SHARED).to_arrow_table()
    roles = dict(connection.execute(_ROLES).fetchall())
    launches, waits, calls, blocking = _of_calls(sql(_CALLS).to_arrow_reader(ROWS_READ), launched, _Ids(shared), roles)
    ops = _not_inside(sql(_OPS).to_arrow_reader(ROWS_READ))
    return Events(*map(by_process, (work, launches, waits, ops, calls, blocking)))


class _Ids:
    """Correlation ids of each process: those of GPU work, or of a few calls."""

    def __init__(self, work: pa.Table):
        process, ids = integers(work["process"]), integers(work["correlation_id"])
        if (process[1:] < process[:-1]).any():
            order = by_number(process)
            process, ids = process[order], ids[order]
        # (0 is none.)
        self._of = {int(process[run.start]): Among(ids[run][ids[run] > 0]) for run in equal_runs(process)}

    def __bool__(self) -> bool:
        return bool(self._of)

    def has(self, rows: pa.RecordBatch) -> Bools:
        """Whether rows with process and correlation_id belong to GPU work."""
        process, ids = integers(rows["process"]), integers(rows["correlation_id"])
        found = np.zeros(len(ids), bool)
        for run in equal_runs(process):
            number = int(process[run.start])
            if number in self._of:
                found[run] = self._of[number].has(ids[run])
        return found


def _of_calls(
    reader: pa.RecordBatchReader, launched: _Ids, shared: _Ids, roles: dict[str, str]
) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """Of the rows of _CALLS, those that launched work, made a stream wait, and keep a thread busy as they launched
    something or may block; and of these the ones that may, with the way (`blocks`)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = reader.schema
    times = pa.schema([schema.field(c) for c in _TIMES])
    launches, waits, busy = [schema.empty_table()], [times.empty_table()], [times.empty_table()]
    blocking = [schema.append(pa.field("blocks", pa.int8())).empty_table()]
    for rows in reader:
        names = rows["name"]
        ways = [_WAYS[roles[n]] if n in roles else 0 for n in names.dictionary.to_pylist()]
        way = np.array([*ways, 0], np.int8)[names.indices.fill_null(len(ways)).to_numpy()]
        on_thread = pc.is_valid(rows["tid"])
        ended = pc.and_(on_thread, pc.is_valid(rows["end_ns"])).to_numpy(zero_copy_only=False)
        blocks = ended & (way > 0) & (way != _MAKES_WAIT)
        launching = launched.has(rows)
        alone = launching & ~shared.has(rows) if shared else launching
        launches.append(pa.Table.from_batches([rows.filter(pa.array(alone))]))
        waits_here = pc.and_(on_thread, pa.array(way == _MAKES_WAIT))
        waits.append(pa.Table.from_batches([rows.select(_TIMES).filter(waits_here)]))
        busy.append(pa.Table.from_batches([rows.select(_TIMES).filter(pa.array(blocks | (ended & launching)))]))
        told = rows.append_column("blocks", pa.array(way))
        # (A copy waits for its own work, which an id that is nobody's does not tell.)
        own = pc.if_else(pa.array(alone), rows["correlation_id"], None)
        told = told.set_column(told.schema.get_field_index("correlation_id"), "correlation_id", own)
        blocking.append(pa.Table.from_batches([told.filter(pa.array(blocks))]))
    return pa.concat_tables(launches), pa.concat_tables(waits), pa.concat_tables(busy), pa.concat_tables(blocking)


def _not_inside(reader: pa.RecordBatchReader) -> pa.Table:
    """The rows of _OPS, but for most that lie inside of another one: what stands together in a file is compared."""
    import pyarrow as pa

    found = [reader.schema.empty_table()]
    for rows in reader:
        process, tid, start, end = (rows[c].to_numpy() for c in ("process", "tid", "start_ns", "end_ns"))
        inside = np.zeros(len(tid), bool)
        for here in _of_threads(process, tid):
            begins = start[here]
            if (begins[1:] < begins[:-1]).any():
                here = here[np.argsort(begins, kind="stable")]
                begins = start[here]
            ends = end[here]
            reached = np.maximum.accumulate(ends)[:-1]
            inside[here[1:]] = (begins[1:] < reached) & (ends[1:] <= reached)
        found.append(pa.Table.from_batches([rows.filter(pa.array(~inside))]))
    return pa.concat_tables(found)


def _of_threads(process: npt.NDArray[np.integer[Any]], tid: Ints) -> Iterator[Ints]:
    """The rows of each thread, in their order."""
    left = np.arange(len(tid))
    for _ in range(_FEW_THREADS):  # (as most batches have; for them, to number the threads takes longer)
        if not len(left):
            return
        same = (tid[left] == tid[left[0]]) & (process[left] == process[left[0]])
        yield left[same]
        left = left[~same]
    lane = dense(pairs(process[left], tid[left]))[0]
    order = by_number(lane)
    yield from (left[order[run]] for run in equal_runs(lane[order]))


def by_process(rows: pa.Table) -> _OfRanks:
    """The rows of a process."""
    process = rows["process"].to_numpy()
    if (process[1:] < process[:-1]).any():
        rows = rows.take(np.argsort(process, kind="stable"))
        process = rows["process"].to_numpy()
    found = {int(process[r.start]): r for r in equal_runs(process)}

    def of(number: int) -> pa.Table:
        place = found.get(number, slice(0, 0))
        return rows.slice(place.start, place.stop - place.start).drop_columns("process")

    return of


def _with_launches(work: pa.Table, launches: pa.Table) -> pa.Table:
    """GPU work, and the call that launched it."""
    import pyarrow as pa

    wanted, ids = integers(work["correlation_id"]), integers(launches["correlation_id"])
    in_driver = launches["in_driver"].to_numpy()
    # The runtime's call, where one of the driver runs inside it under the same id.
    place = Places(np.where(in_driver, UNKNOWN, ids)).of(wanted)
    if in_driver.any():
        place = np.where(place < 0, Places(np.where(in_driver, ids, UNKNOWN)).of(wanted), place)
    of_call = {"tid": "tid", "launch_ns": "start_ns", "launch_end_ns": "end_ns", "launch": "name"}
    found = launches.select(list(of_call.values())).take(pa.array(place, mask=place < 0))
    for name, column in zip(of_call, found.columns, strict=True):
        work = work.append_column(name, column)
    return work


def _in_turn(work: pa.Table, waits: pa.Table) -> pa.Table:
    """GPU work by start, and which `waits`. The trace does not say which stream a call makes wait: the one into which
    its thread launches next, if that is later than the last launch into it."""
    import pyarrow as pa

    start, end, correlation = (integers(work[c]) for c in ("start_ns", "end_ns", "correlation_id"))
    work = work.take(in_order(np.zeros(len(start), np.int64), start, (end, correlation == UNKNOWN, correlation)))
    tid, launch = integers(work["tid"]), integers(work["launch_ns"])
    thread, called = integers(waits["tid"]), integers(waits["start_ns"])
    made_to = np.full(len(tid), UNKNOWN)
    for number in np.unique(thread):
        rows = np.flatnonzero(tid == number)
        of_thread = np.append(np.sort(called[thread == number]), UNKNOWN)
        made_to[rows] = of_thread[np.searchsorted(of_thread[:-1], launch[rows], "right") - 1]
    last = np.append(launch, UNKNOWN)[before_on_stream(stream_numbers(work))]
    return work.append_column("waits", pa.array((made_to != UNKNOWN) & (made_to >= last)))


def _busy(ops: pa.Table, calls: pa.Table) -> pa.Table:
    """Calls, and the operators that no other operator encloses, by thread and start."""
    import pyarrow as pa

    tid, start, end = (integers(ops[c]) for c in _TIMES[1:])
    order = in_order(dense(tid)[0], start, (-end,))
    outer = np.zeros(len(order), bool)
    for rows in equal_runs(tid[order]):
        here = order[rows]
        outer[rows] = np.append(True, start[here[1:]] >= np.maximum.accumulate(end[here])[:-1])
    both = pa.concat_tables([ops.take(order[outer]), calls])
    return both.take(in_order(dense(integers(both["tid"]))[0], integers(both["start_ns"]), ()))
