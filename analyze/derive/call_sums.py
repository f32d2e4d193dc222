"""Sums over the call tree of a rank: by path, and the GPU work that the calls of a path launched.

`docs/architecture.md` says why they are stored: a query reads thousands of paths instead of millions of calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analyze.derive import replayed_calls
from analyze.derive.call_paths import number_paths
from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import dense, firsts, last_below, nest, pairs, self_times
from analyze.derive.numpy_columns import NULL, Ints, ints, nullable, text_codes, texts, values_at
from analyze.derive.replayed_calls import Calls, replays_and_tree
from analyze.derive.threads import OpenIntervals
from schemas.table_declaration import declare_table

if TYPE_CHECKING:
    import pyarrow as pa

TREES = ("op", "module", "stack")
"""Which Python functions a tree contains: none, only nn.Modules, or all."""

_PLACES = ("op", "python", "range")
MODULE = "nn.Module: "
"""What the names of the Python functions of modules begin with."""

_CALLS = ("kind", "name", "pid", "tid", "start_ns", "dur_ns", "parent", "depth", "self_ns", "path")
_REPLAYS = {"captured_tree": _CALLS, "graph_launches": replayed_calls.LAUNCHES_READS}
PATHS_READS = {
    "call_tree": _CALLS,
    "call_work": ("tree", "path", "forward_path", "total_ns"),
    "gpu_work": replayed_calls.WORK_READS,
    **_REPLAYS,
}
"""Columns that call_paths is computed from."""
WORK_READS = {
    "call_tree": (*_CALLS, "op_id"),
    "gpu_work": (
        "kind", "name", "start_ns", "dur_ns", "op_id", "call_tid", "call_start_ns", "forward_tid", "forward_start_ns",
        "graph", "capture_tid", "capture_start_ns",
    ),
    **_REPLAYS,
}  # fmt: skip
"""Columns that call_work is computed from."""


def call_paths(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of call_paths, from the columns PATHS_READS of a rank's tables."""
    import pyarrow as pa

    names, trees = _trees(tables)
    work = tables["call_work"].filter(tables["call_work"].column("forward_path").is_valid())
    return pa.concat_tables([_sums_by_path(tree, found.calls, names, work) for tree, found in trees])


class Tree(NamedTuple):
    """A tree, and the calls in it that the work of replays of CUDA graphs belongs to."""

    calls: Calls
    launching: Ints
    """Place of the call of each piece of GPU work; -1 of work of no replay, or without a call."""
    forward: Ints
    """Place of the call whose gradient it computes."""


def _trees(tables: Mapping[str, pa.Table]) -> tuple[pa.Array, Iterator[tuple[str, Tree]]]:
    """Return the names of events, and each tree."""
    import pyarrow.compute as pc

    replays, call_tree, recorded = replays_and_tree(tables, _CALLS)
    (kind,), kinds = text_codes([call_tree.column("kind")])
    (name,), names = text_codes([call_tree.column("name")])
    kind = np.array([_PLACES.index(k) if k in _PLACES else -1 for k in kinds.to_pylist()] + [-1])[kind]
    is_python = kind == _PLACES.index("python")
    is_module = np.append(pc.starts_with(names, MODULE).to_numpy(zero_copy_only=False), False)[name]
    pid, tid, start, dur, parent, depth, self_ns, path = (ints(call_tree, c) for c in _CALLS[2:])
    if replays:
        # Places and paths of captured calls follow those of the recording.
        is_captured = np.arange(len(parent)) >= recorded
        parent = np.where(is_captured & (parent != NULL), parent + recorded, parent)
        path = path + is_captured * (max(int(path[~is_captured].max(initial=-1)), -1) + 1)

    def trees() -> Iterator[tuple[str, Tree]]:
        found, size = None, -1
        for tree, python in zip(TREES, (False, is_module, True), strict=True):
            rows = np.flatnonzero((kind >= 0) & (~is_python | python))
            # Trees with the same events are equal. The stack tree has the paths of the table call_tree.
            if found is None or len(rows) > size or (tree == "stack" and is_python.any()):
                found, size = with_replays(made(rows, tree)), len(rows)
            yield tree, found

    def with_replays(calls: Calls) -> Tree:
        if not replays:
            none = np.full(tables["gpu_work"].num_rows, -1)
            return Tree(calls, none, none)
        label = calls.kind.astype(np.int64) * (len(names) + 1) + calls.name + 1
        return Tree(*replays.add(calls, int(np.searchsorted(calls.rows, recorded)), label))

    def made(rows: Ints, tree: str) -> Calls:
        end = start[rows] + dur[rows]
        if tree == "stack" or not is_python.any():
            place = np.full(len(kind) + 1, -1)
            place[rows] = np.arange(len(rows))
            up = place[np.where(parent[rows] == NULL, -1, parent[rows])]
            of_tree = (up, depth[rows], self_ns[rows], path[rows])
        else:
            lane = firsts((rows < recorded).astype(np.int64), pid[rows], tid[rows])
            up, last, level = nest(np.cumsum(lane), start[rows], end)
            label = kind[rows] * (len(names) + 1) + name[rows] + 1
            of_tree = (up, level, self_times(up, last, start[rows], end), number_paths(up, level, label))
        return Calls(rows, kind[rows], name[rows], tid[rows], start[rows], end, *of_tree, np.ones(len(rows), np.int64))

    return names, trees()


def _sums_by_path(tree: str, calls: Calls, names: pa.Array, backward: pa.Table) -> pa.Table:
    """Return the sums of the paths of a tree. `backward`: work of the backward pass, in all trees."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n = int(calls.path.max(initial=-1)) + 1
    one = np.zeros(n, np.int64)  # a call of each path
    one[calls.path] = np.arange(len(calls.path))
    parent, depth = values_at(calls.path, calls.parent[one], missing=-1), calls.depth[one]
    first = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(first, calls.path, calls.start)
    last = last_below(parent, depth)
    work = backward.filter(pc.equal(backward.column("tree"), tree))
    launched, forward, ns = (ints(work, c) for c in ("path", "forward_path", "total_ns"))
    return pa.table(
        {
            "tree": texts(np.zeros(n, np.int32), pa.array([tree])),
            "path": np.arange(n, dtype=np.int32),
            "parent": nullable(np.where(parent < 0, NULL, parent), pa.int32()),
            "last_path": pa.array(last, pa.int32()),
            "depth": pa.array(depth, pa.int32()),
            "kind": texts(calls.kind[one], pa.array(_PLACES)),
            "name": texts(calls.name[one], names),
            "calls": sums(calls.path, n, calls.times),
            "total_ns": sums(calls.path, n, calls.end - calls.start),
            "self_ns": sums(calls.path, n, calls.self_ns),
            "backward_ns": nullable(backward_times(parent, last, launched, forward, ns)),
            "first_ns": first,
        }
    )


def backward_times(parent: Ints, last: Ints, launched: Ints, forward: Ints, ns: Ints) -> Ints:
    """Return for each of n nodes, in pre-order, the time of the backward pass of it and the nodes below it.

    `launched`, `forward`, `ns`: node that launched the work (NULL or -1: none), node whose backward pass it is (-1:
    none), and its time. Work that a node or one below it launched is not counted there: it is GPU time of the node
    already. NULL for all if a sum may need more than 64 bits.
    """
    if np.abs(ns, dtype=np.float64).sum() >= 2**62:
        return np.full(len(parent), NULL)
    own = np.zeros(len(parent), np.int64)
    rows = np.flatnonzero(forward >= 0)
    launched, around, ns = launched[rows], forward[rows], ns[rows]
    np.add.at(own, around, ns)
    # Climb to the innermost node with both.
    left = np.arange(len(rows))
    while len(left):
        left = left[(launched[left] < around[left]) | (launched[left] > last[around[left]])]
        around[left] = parent[around[left]]
        left = left[around[left] >= 0]
    inside = around >= 0
    np.subtract.at(own, around[inside], ns[inside])
    so_far = np.append(0, np.cumsum(own))
    total: Ints = so_far[last + 1] - so_far[:-1]
    return total


def sums(group: Ints, groups: int, values: Ints) -> pa.Array:
    """Return the sum of the values of each group; NULL for all if a sum may need more than 64 bits."""
    import pyarrow as pa

    if np.abs(values, dtype=np.float64).sum() >= 2**62:
        return pa.nulls(groups, pa.int64())
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return pa.array(total)


def call_work(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of call_work, from the columns WORK_READS of a rank's tables."""
    import pyarrow as pa

    work = tables["gpu_work"]
    start, dur, op_id, tid, at, forward_tid, forward = (ints(work, c) for c in WORK_READS["gpu_work"][2:9])
    kinds, kind_texts = text_codes([work.column("kind")])
    (names,), name_texts = text_codes([work.column("name")])
    label = pairs(kinds[0], names)
    event_ids = ints(tables["call_tree"], "op_id")
    parts = []
    found = None
    for tree, (calls, of_replays, forward_of_replays) in _trees(tables)[1]:
        if found is None or calls is not found[0]:
            place = _launching(calls, np.append(event_ids, NULL)[calls.rows], op_id, tid, at)
            place = np.where(of_replays >= 0, of_replays, place)
            forward_place = _at(calls, forward_tid, forward)
            forward_place = np.where(of_replays >= 0, forward_of_replays, forward_place)
            of_path = np.append(calls.path, -1)
            group, known = dense(pairs(pairs(of_path[place], of_path[forward_place]), label))
            found = calls, place, forward_place, group, len(known)
        _, place, forward_place, group, n = found
        one = np.zeros(n, np.int64)
        one[group] = np.arange(len(group))
        path, forward_path = (values_at(calls.path, p[one]) for p in (place, forward_place))
        first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, NULL)
        np.minimum.at(first, group, start)
        np.maximum.at(last, group, start)
        parts.append(
            pa.table(
                {
                    "tree": texts(np.zeros(n, np.int32), pa.array([tree])),
                    "path": nullable(path, pa.int32()),
                    "forward_path": nullable(forward_path, pa.int32()),
                    "kind": texts(kinds[0][one], kind_texts),
                    "name": texts(names[one], name_texts),
                    "calls": np.bincount(group, minlength=n),
                    "total_ns": sums(group, n, dur),
                    "first_ns": first,
                    "last_ns": last,
                }
            )
        )
    return pa.concat_tables(parts, promote_options="default").unify_dictionaries()


def _launching(calls: Calls, event_ids: Ints, op_id: Ints, tid: Ints, at: Ints) -> Ints:
    """Return the call that launched each piece of GPU work; -1 where none is known.

    Of several operators of one External id it is the last; of those on several threads, the last on the thread of the
    launch call. Work without an External id is that of the innermost call in which the launch call lies.
    """
    is_op = (calls.kind != _PLACES.index("python")) & (event_ids > 0)
    found = np.full(len(op_id), -1)
    rows = np.flatnonzero(is_op)
    known, ids = dense(event_ids[rows])
    if len(ids):
        last = np.zeros(len(ids), np.int64)
        last[known] = rows
        differs = calls.tid[rows] != calls.tid[last[known]]
        several = np.zeros(len(ids), bool)
        several[known[differs]] = True
        number = np.minimum(np.searchsorted(ids, op_id), len(ids) - 1)
        linked = ids[number] == op_id
        found[linked] = last[number[linked]]
        shared = np.flatnonzero(linked & several[number])
        if len(shared):
            mine = rows[several[known]]
            keys = np.concatenate([event_ids[mine], op_id[shared]])
            threads = np.concatenate([calls.tid[mine], tid[shared]])
            key = dense(pairs(keys, threads))[0]
            of_key = np.full(int(key.max()) + 1, -1)
            of_key[key[: len(mine)]] = mine
            found[shared] = np.where(at[shared] != NULL, of_key[key[len(mine) :]], -1)
    alone = np.flatnonzero((op_id == NULL) | (op_id == 0))
    found[alone] = _at(calls, tid[alone], at[alone])
    return found


def _at(calls: Calls, tid: Ints, at: Ints) -> Ints:
    """Return the innermost call of a thread at each time; -1 without one, or where the time is NULL."""
    found = np.full(len(at), -1)
    rows = np.flatnonzero(at != NULL)
    if len(rows):
        found[rows] = OpenIntervals(calls.tid, calls.start, calls.end).at(tid[rows], at[rows])
    return found


_TREE = (
    "tree",
    "string",
    "",
    "which Python functions are part of the tree: op (none), module (those of nn.Modules) or stack (all)",
)


DERIVED = (
    Derived(
        declare_table(
            "call_work",
            "a name of GPU work that the calls of a path launched themselves",
            _TREE,
            ("path", "int32", "", "path in call_paths; NULL for work that no operator or range launched"),
            (
                "forward_path",
                "int32",
                "",
                "of work of the backward pass: path of the forward operator whose gradient it computes; else NULL",
            ),
            ("kind", "string", "", "kernel, memcpy or memset"),
            ("name", "string", "", "kernel name as in kernels; of a copy or fill, what torch.profiler calls it"),
            ("calls", "int64", "", "kernels, copies or fills"),
            ("total_ns", "int64", "ns", "sum of their durations; NULL if 64 bits may not hold it"),
            ("first_ns", "int64", "ns", "first start"),
            ("last_ns", "int64", "ns", "last start"),
        ),
        version=3,
        reads=WORK_READS,
        compute=call_work,
    ),
    Derived(
        declare_table(
            "call_paths",
            "a path of names in a call tree, from the root of a thread down to an operator, range or Python function",
            _TREE,
            ("path", "int32", "", "number in the rank and tree, in pre-order"),
            ("parent", "int32", "", "path without its last name; NULL for a root"),
            ("last_path", "int32", "", "last path below it; its own if there is none"),
            ("depth", "int32", "", "level in the tree, from 0"),
            ("kind", "string", "", "of the last name: op, range or python"),
            ("name", "string", "", "last name of the path"),
            ("calls", "int64", "", "number of calls"),
            ("total_ns", "int64", "ns", "sum of their durations; NULL if 64 bits may not hold it"),
            ("self_ns", "int64", "ns", "sum of their self times; NULL as total_ns"),
            (
                "backward_ns",
                "int64",
                "ns",
                "GPU work that its operators and those below it cause in the backward pass elsewhere; NULL as total_ns",
            ),
            ("first_ns", "int64", "ns", "first start"),
        ),
        version=3,
        reads=PATHS_READS,
        compute=call_paths,
    ),
)
