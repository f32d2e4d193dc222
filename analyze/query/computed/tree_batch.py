"""What a batch of ranks has of a call tree: its nodes, their paths and operators, as columns for DuckDB."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.query.computed.call_paths import dense, pairs
from analyze.query.computed.name_sums import by_name
from analyze.query.computed.nesting import UNKNOWN, Room, Tree
from analyze.query.computed.path_sums import PathSums

Bools = npt.NDArray[np.bool_]


class Batch(NamedTuple):
    """A tree, and what was made of it; arrays lie in a room that the next batch is put into."""

    number: int
    events: dict[str, Any]
    tree: Tree
    room: Room
    nodes: int
    """Number of the first node; likewise of the first path."""
    paths: int
    path: npt.NDArray[np.int32] | None = None
    """Of each node; only in a tree of places."""
    sums: PathSums | None = None

    def taken(self, name: str) -> npt.NDArray[Any]:
        """A column of the events by node."""
        # (mode="raise" would make a copy.)
        events = self.events[name]
        place = self.room.array(name, events.dtype, len(self.tree.order))
        return np.take(events, self.tree.order, out=place, mode="clip")


def sums_of_batch(batch: Batch) -> pa.Table:
    """A row for each name."""
    sums = by_name(batch.tree, batch.events)
    return pa.Table.from_pydict({name: column(values) for name, values in sums._asdict().items()})


def rows_of(batch: Batch) -> pa.Table:
    """A row for each node."""
    tree, nodes = batch.tree, batch.nodes
    tid, op = batch.taken("tid"), batch.taken("op_id")
    rows = {
        "process": column(batch.taken("process")),
        "kind": column(batch.taken("kind")),
        "name": column(batch.taken("name")),
        "tid": column(tid, tid == UNKNOWN),
        "op_id": column(op, op == UNKNOWN),
        "start_ns": column(batch.taken("start_ns")),
        "dur_ns": column(batch.taken("dur_ns")),
        "node": column(np.arange(nodes, nodes + len(tid), dtype=np.int32)),
        "parent": column((tree.parent + nodes).astype(np.int32), tree.parent < 0),
        "last_node": column((tree.last + nodes).astype(np.int32)),
        "depth": column(tree.depth.astype(np.int16)),
        "self_ns": column(tree.self_ns),
        "folded": column(tree.folded),
        "gpu_ns": column(tree.gpu_ns),
        "total_gpu_ns": column(tree.total_gpu_ns),
    }
    if batch.path is not None:
        rows["path"] = column(batch.path + np.int32(batch.paths), batch.path < 0)
    return pa.Table.from_pydict(rows)


def paths_of_batch(batch: Batch) -> pa.Table:
    """A row for each path."""
    sums, paths = batch.sums, batch.paths
    assert sums is not None, "a tree of places"
    rows = {
        "process": column(sums.process),
        "kind": column(sums.kind),
        "name": column(sums.name),
        "path": column(np.arange(paths, paths + len(sums.parent), dtype=np.int32)),
        "parent": column((sums.parent + paths).astype(np.int32), sums.parent < 0),
        "last_path": column((sums.last + paths).astype(np.int32)),
        "depth": column(sums.depth.astype(np.int16)),
    }
    rows |= {c: column(getattr(sums, c)) for c in ("calls", "total_ns", "self_ns", "first_ns")}
    return pa.Table.from_pydict(rows)


def ops_of(batch: Batch) -> pa.Table:
    """The path of the last operator or range of each External id with GPU work, and whether several threads have it."""
    assert batch.path is not None, "a tree of places"
    # (SQL has put GPU work beside operators and ranges with an id alone.)
    here = np.flatnonzero(batch.taken("launched_ns"))
    event, path = batch.tree.order[here], batch.path[here]
    process, tid, op = (batch.events[c][event] for c in ("process", "tid", "op_id"))
    key, known = dense(pairs(process, op))
    node, of_tid = np.empty(len(known), np.int64), np.empty(len(known), np.int64)
    node[key] = np.arange(len(here))  # of several, the last
    of_tid[key] = tid
    several = np.zeros(len(known), bool)
    several[key[of_tid[key] != tid]] = True
    return pa.Table.from_pydict(
        {
            "process": column(process[node]),
            "op_id": column(op[node]),
            "path": column(path[node] + np.int32(batch.paths)),
            "several": column(several),
        }
    )


def column(values: npt.NDArray[Any], null: Bools | None = None) -> pa.Array:
    """The values as they lie there; pa.array would import pandas first, which takes half a second."""
    known = None if null is None or not null.any() else pa.py_buffer(np.packbits(~null, bitorder="little"))
    held = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [known, pa.py_buffer(held)])
