"""The paths of a call tree, with the sums of their calls.

They are found node by node by `_paths.c` where that is compiled (`analyze.compiled`), elsewhere level by level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.compiled import if_compiled
from analyze.query.computed.call_paths import number_paths
from analyze.query.computed.nesting import ASYNC, Room, Tree, check_sums

compiled = if_compiled("analyze.query.computed._paths")

Ints = npt.NDArray[np.int64]

_PATH = np.dtype(
    [(name, np.int32) for name in ("above", "process", "name", "kind", "depth", "unused")]
    + [(name, np.int64) for name in ("calls", "total_ns", "self_ns", "first_ns")]
)
"""Of `_paths.c`."""


class PathSums(NamedTuple):
    """Paths in pre-order; all of shape n."""

    process: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    """Of the last node, as its name."""
    name: npt.NDArray[np.int32]
    parent: Ints
    """-1 for a root."""
    last: Ints
    """The last path below it; its own number if there is none."""
    depth: Ints
    calls: Ints
    total_ns: Ints
    self_ns: Ints
    first_ns: Ints


def paths_of(tree: Tree, events: dict[str, Any], room: Room) -> tuple[npt.NDArray[np.int32], PathSums]:
    """The path of each node of the tree of events (-1: none, of async), which may lie in the room; and the paths.

    Raises InputError for sums that an int64 cannot hold."""
    check_sums(events["dur_ns"], tree.self_ns)
    return level_by_level(tree, events) if compiled is None else node_by_node(tree, events, room)


def node_by_node(tree: Tree, events: dict[str, Any], room: Room) -> tuple[npt.NDArray[np.int32], PathSums]:
    """The same: compiled."""
    if compiled is None:
        raise ImportError("analyze.query.computed._paths is not built, or switched off")
    n = len(tree.order)
    found = room.array("path_found", np.int32, n)
    given = (events[c] for c in ("process", "name", "kind", "start_ns", "dur_ns"))
    made = compiled.number(n, tree.order, tree.parent, tree.self_ns, *given, found)
    paths = np.frombuffer(made, _PATH)
    # They are nodes of a tree in which no path is there twice.
    number, known = number_paths(
        paths["process"], paths["above"], paths["depth"], _labels(paths["kind"], paths["name"])
    )
    paths = paths[np.argsort(number)]
    # (-1 takes the last.)
    of = np.take(np.append(number, -1).astype(np.int32), found, out=room.array("path", np.int32, n), mode="wrap")
    kind = paths["kind"].astype(np.int8)
    sums = (paths[c] for c in ("calls", "total_ns", "self_ns", "first_ns"))
    return of, PathSums(paths["process"], kind, paths["name"], known.parent, known.last, known.depth, *sums)


def level_by_level(tree: Tree, events: dict[str, Any]) -> tuple[npt.NDArray[np.int32], PathSums]:
    """The same where nothing could be compiled, and what the compiled one is held to."""
    process, kind, name, start, length = (
        events[c][tree.order] for c in ("process", "kind", "name", "start_ns", "dur_ns")
    )
    depth = np.where(kind == ASYNC, -1, tree.depth)
    of, known = number_paths(process, tree.parent, depth, _labels(kind, name))
    on = np.flatnonzero(of >= 0)
    at, n = of[on], len(known.parent)
    of_path = np.empty(n, np.int64)
    of_path[at] = on
    total, self_ns, first = np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, np.iinfo(np.int64).max)
    np.add.at(total, at, length[on])
    np.add.at(self_ns, at, tree.self_ns[on])
    np.minimum.at(first, at, start[on])
    calls = np.bincount(at, minlength=n)
    its = (process[of_path], kind[of_path], name[of_path])
    return of.astype(np.int32), PathSums(*its, known.parent, known.last, known.depth, calls, total, self_ns, first)


def _labels(kind: npt.NDArray[Any], name: npt.NDArray[Any]) -> Ints:
    """A number for each kind and name, of which one may be -1."""
    return kind.astype(np.int64) * (int(name.max(initial=0)) + 2) + name + 1
