"""Which operator or range launched GPU work, by its External id: looked up rank by rank in arrays, where DuckDB would
hash all work and all operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.query.computed.call_paths import dense
from analyze.query.computed.in_turn import ROWS_READ
from analyze.query.computed.nesting import UNKNOWN, in_order
from analyze.query.computed.places import equal_runs, integers
from analyze.query.computed.registered import registered

if TYPE_CHECKING:
    import duckdb

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]

TIMES = ("tid", "start_ns", "end_ns")
POINT = ("from_tid", "from_ns", "from_end_ns")
"""Of the operator or range that launched a piece of work, as `work_points` has them."""

_MOST_EMPTY = 32
"""Places of an array over External ids for each piece of work."""

_UNLINKED = """
CREATE OR REPLACE TEMP TABLE unlinked_work AS
SELECT run_id, rank, m.* FROM unlinked_rows m JOIN {ranks} USING (process)
"""
_BY_THREAD = "SELECT * EXCLUDE (run_id, rank) FROM work_points('unlinked_work')"


class Work(NamedTuple):
    """GPU work of some ranks."""

    rows: pa.Table
    """By process; likewise its processes and External ids:"""
    process: Ints
    op: Ints
    rows_of: dict[int, slice]
    """Where a process has its work; likewise by the number of the process:"""
    ids: dict[int, Ids]

    def launching(self, number: int, events: Columns) -> Columns:
        """Of operators and ranges of a process, those with the External id of any work."""
        names = [c for c in (*TIMES, "op_id", "name") if c in events]
        return taken(events, np.flatnonzero(self.ids[number].of(events["op_id"]) >= 0), *names)


def work_of(rows: pa.Table) -> Work:
    """Work with the columns process and op_id."""
    process = integers(rows["process"])
    if (process[1:] < process[:-1]).any():
        order = np.argsort(process, kind="stable")
        rows, process = rows.take(order), process[order]
    op = integers(rows["op_id"])
    rows_of = {int(process[of.start]): of for of in equal_runs(process)}
    return Work(rows, process, op, rows_of, {number: Ids(op[of]) for number, of in rows_of.items()})


def points(work: Work, launching: dict[int, Columns]) -> tuple[Columns, Bools]:
    """Where each piece comes from, UNKNOWN if no operator or range has its External id; and whether several threads
    have one with it.

    `launching`: by process, what `Work.launching` finds. If it has names, so has the answer, as `from_name`.
    """
    given = dict(zip(POINT, TIMES, strict=True))
    if any("name" in events for events in launching.values()):
        given["from_name"] = "name"
    found = {c: np.full(len(work.op), UNKNOWN) for c in given}
    several_of = np.zeros(len(work.op), bool)
    for number, events in launching.items():
        rows, ids = work.rows_of[number], work.ids[number]
        known = ids.of(events["op_id"])
        last = _last(known, ids.most)
        several = np.zeros(len(known) + 1, bool)
        if (last[known] != np.arange(len(known))).any():
            by_start = in_order(np.zeros(len(known), np.int64), events["start_ns"], (-events["end_ns"],))
            events, known = taken(events, by_start, *given.values()), known[by_start]
            last = _last(known, ids.most)
            several[last[known][events["tid"][last[known]] != events["tid"]]] = True
        # (-1 takes the last, which stands for what is not there.)
        at = last[ids.of(work.op[rows])]
        several_of[rows] = several[at]
        here = np.flatnonzero(at >= 0)
        at = at[here]
        for column, name in given.items():
            found[column][here + rows.start] = events[name][at]
    return found, several_of


def _last(known: Ints, most: int) -> npt.NDArray[np.int32]:
    """The last place of each number below `most`, and -1 behind them."""
    last = np.full(most + 1, -1, np.int32)
    last[known] = np.arange(len(known), dtype=np.int32)
    return last


def by_thread(connection: duckdb.DuckDBPyConnection, ranks: str, unlinked: pa.Table) -> pa.Table:
    """Work that its External id alone does not place, and where it comes from.

    `ranks`: the table that numbers processes.
    """
    with registered(connection, unlinked_rows=unlinked):
        connection.execute(_UNLINKED.format(ranks=ranks))
    found = connection.sql(_BY_THREAD).to_arrow_table()
    connection.execute("DROP TABLE unlinked_work")
    return found


class Ids:
    """External ids of a process with GPU work, as numbers below `most`."""

    def __init__(self, op: Ints):
        op = op[(op > 0) & (op != UNKNOWN)]
        self._low = int(op.min(initial=UNKNOWN))
        self.most = int(op.max(initial=self._low - 1)) - self._low + 1
        self._is_array = self.most <= _MOST_EMPTY * len(op) + 2**16
        if self._is_array:
            # Its last place is that of everything else.
            self._there = np.zeros(self.most + 1, bool)
            self._there[op - self._low] = True
        else:
            self._known = np.unique(op)
            self.most = len(self._known)

    def of(self, op: Ints) -> Ints:
        """The numbers of ids; -1 of what has no work."""
        if self._is_array:
            # (Unsigned, what is below the first is above the last.)
            place = np.minimum((op - self._low).view(np.uint64), np.uint64(self.most)).view(np.int64)
            return np.where(self._there[place], place, -1)
        place = np.searchsorted(self._known[:-1], op)
        return np.where(self._known[place] == op, place, -1)


class OnThreads:
    """Intervals of a process, none of which lies in another of its thread, found by thread and time.

    `lane`, by which they ascend, numbers the threads `tids`; on one they ascend by start.
    """

    def __init__(self, lane: Ints, tids: Ints, start: Ints, end: Ints):
        self._threads = [(int(tids[lane[rows.start]]), rows) for rows in equal_runs(lane)]
        self._start, self._end = start, end

    def of(self, rows: Ints, tid: Ints, at_ns: Ints) -> tuple[Ints, Ints]:
        """Those of the rows in which a thread is in one at a time, and the places of these; `tid` and `at_ns` are of
        all rows. Of several that it is in, the last to begin."""
        found, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for thread, held in self._threads:
            here = rows[tid[rows] == thread]
            place = held.start + np.searchsorted(self._start[held], at_ns[here], "right") - 1
            inside = (place >= held.start) & (at_ns[here] < self._end[place])
            found.append(here[inside])
            places.append(place[inside])
        return np.concatenate(found), np.concatenate(places)


def on_threads(intervals: Columns) -> tuple[Ints, OnThreads]:
    """Intervals of a process, of which none lies in another, in the order of their places, and where these are."""
    lane, tids = dense(intervals["tid"])
    order = in_order(lane, intervals["start_ns"], (-intervals["end_ns"],))
    return order, OnThreads(lane[order], tids, *(intervals[c][order] for c in ("start_ns", "end_ns")))


def read_by_process(found: duckdb.DuckDBPyRelation) -> Iterator[tuple[int, Columns]]:
    """Each process and the other columns of some of its rows, as they come."""
    for rows in found.to_arrow_reader(ROWS_READ):
        columns = {c: rows[c].to_numpy(zero_copy_only=False) for c in rows.schema.names}
        process = columns.pop("process")
        for of in equal_runs(process):
            yield int(process[of.start]), {c: values[of] for c, values in columns.items()}


def by_process(process: Ints) -> Iterator[tuple[int, Ints]]:
    """Each process and the places of its rows."""
    order = np.argsort(process, kind="stable")  # which is fast, for most are in order
    for rows in equal_runs(process[order]):
        yield int(process[order[rows.start]]), order[rows]


def taken(columns: Columns, rows: npt.NDArray[np.intp], *names: str) -> Columns:
    """Rows of these columns."""
    return {name: columns[name][rows] for name in names}


def together(parts: list[Columns]) -> Columns:
    """Rows behind one another; a part is let go of once it is there."""
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
