"""Place the captured calls of CUDA graphs in the call tree below the launches of their replays.

A replay runs none of the operators and modules that were captured. So they have no CPU time there; they have the GPU
work of the replays. They count once for each replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.derive.call_paths import number_paths
from analyze.derive.interval_nesting import Ints, firsts
from analyze.derive.numpy_columns import NULL, ints, values_at
from analyze.derive.threads import OpenIntervals

if TYPE_CHECKING:
    import pyarrow as pa

LAUNCHES_READS = ("graph", "begin_ns", "end_ns", "tid")
"""Columns of graph_launches that Replays needs."""
WORK_READS = (
    "graph",
    "call_tid",
    "call_start_ns",
    "capture_tid",
    "capture_start_ns",
    "forward_tid",
    "forward_start_ns",
)
"""Columns of gpu_work that Replays needs."""


class Calls(NamedTuple):
    """Operators, ranges and Python functions in one tree; all columns of one shape."""

    rows: Ints
    """Rows of the table call_tree; -1 of captured calls."""
    kind: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    tid: Ints
    start: Ints
    end: Ints
    parent: Ints
    """Place of the parent here; -1 for a root."""
    depth: Ints
    self_ns: Ints
    path: Ints
    times: Ints
    """Calls that it stands for."""

    def take(self, rows: Ints | slice) -> Calls:
        """Return these rows."""
        return self._replace(**{name: column[rows] for name, column in self._asdict().items()})


class Replays:
    """The replays of a rank's GPU work."""

    def __init__(self, launches: pa.Table, work: pa.Table):
        """`launches`: columns LAUNCHES_READS of graph_launches. `work`: columns WORK_READS of gpu_work."""
        self._launches = [ints(launches, c) for c in LAUNCHES_READS]
        graph, tid, start, *self._captured = (ints(work, c) for c in WORK_READS)
        self._rows = np.flatnonzero(np.isin(graph, self._launches[0]) & (graph != NULL))
        rows = self._rows[np.lexsort((graph[self._rows], start[self._rows], tid[self._rows]))]
        begins = firsts(tid[rows], start[rows], graph[rows]) if len(rows) else np.empty(0, bool)
        self._graph, self._tid, self._start = (column[rows[begins]] for column in (graph, tid, start))
        # The replay of each row.
        self._of_row = np.full(len(graph), -1)
        self._of_row[rows] = np.cumsum(begins) - 1

    def __bool__(self) -> bool:
        """Whether there is any."""
        return len(self._rows) > 0

    def add(self, calls: Calls, recorded: int, labels: Ints) -> tuple[Calls, Ints, Ints]:
        """Return the recorded calls with those of the replays, and the calls that launched each piece of work.

        The first `recorded` of `calls` are those of the recording, the others were captured. `labels` are the numbers
        of their kinds and names. Also returns the forward call of work of the backward pass. -1: none, or no replay.
        """
        own = calls.take(slice(recorded))
        place = OpenIntervals(own.tid, own.start, own.end).at(self._tid, self._start)
        path = values_at(own.path, place, missing=-1)
        parts, part_labels, size = [own], [labels[:recorded]], recorded
        inner, forward = (np.full(len(self._of_row), -1) for _ in range(2))
        inner[self._rows] = place[self._of_row[self._rows]]
        for graph in np.unique(self._graph):
            members = self.members(calls.tid, calls.start, calls.end, recorded, int(graph))
            template = calls.take(members)
            at = OpenIntervals(template.tid, template.start, template.end).at
            local = np.full(len(calls.rows) + 1, -1)
            local[members] = np.arange(len(members))
            parent = local[template.parent]
            root = np.maximum.accumulate(np.where(parent < 0, np.arange(len(members)), 0))
            depth = template.depth - template.depth[root]
            for above in np.unique(path[self._graph == graph]):
                replays = np.flatnonzero((self._graph == graph) & (path == above))
                first = replays[np.argmin(self._start[replays])]
                below = 0 if place[first] < 0 else int(own.depth[place[first]]) + 1
                zero = np.zeros(len(members), np.int64)
                parts.append(
                    template._replace(
                        rows=zero - 1,
                        # In the order of the calls, without a length.
                        start=self._start[first] + np.arange(len(members)),
                        end=self._start[first] + np.arange(len(members)),
                        parent=np.where(parent < 0, place[first], parent + size),
                        depth=depth + below,
                        self_ns=zero,
                        times=zero + len(replays),
                    )
                )
                part_labels.append(labels[members])
                rows = self._rows[np.isin(self._of_row[self._rows], replays)]
                for found, column in ((inner, 0), (forward, 2)):
                    inside = at(self._captured[column][rows], self._captured[column + 1][rows])
                    found[rows] = np.where(inside >= 0, inside + size, found[rows])
                size += len(members)
        found_calls = Calls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        paths = number_paths(found_calls.parent, found_calls.depth, np.concatenate(part_labels))
        return found_calls._replace(path=paths), inner, forward

    @property
    def counts(self) -> dict[int, int]:
        """Replays of each graph."""
        graphs, counts = np.unique(self._graph, return_counts=True)
        return dict(zip(graphs.tolist(), counts.tolist(), strict=True))

    def members(self, tid: Ints, start: Ints, end: Ints, recorded: int, graph: int) -> Ints:
        """Return the events that were captured with a graph: beside the recording, or else within it.

        The first `recorded` events are those of the recording.
        """
        numbers, begin_ns, end_ns, threads = self._launches
        of_graph = numbers == graph
        inside = (start >= begin_ns[of_graph][0]) & (end <= end_ns[of_graph][0]) & np.isin(tid, threads[of_graph])
        beside = np.flatnonzero(inside[recorded:]) + recorded
        return beside if len(beside) else np.flatnonzero(inside)


def replays_and_tree(tables: Mapping[str, pa.Table], columns: Sequence[str]) -> tuple[Replays, pa.Table, int]:
    """Return the replays of a rank, columns of its call tree, and how many rows of that are of the recording.

    If there are replays, the captured calls follow those of the recording.
    """
    import pyarrow as pa

    replays = Replays(tables["graph_launches"], tables["gpu_work"])
    recorded, captured = (tables[name].select(columns) for name in ("call_tree", "captured_tree"))
    both = pa.concat_tables([recorded, captured], promote_options="default") if replays else recorded
    return replays, both, recorded.num_rows
