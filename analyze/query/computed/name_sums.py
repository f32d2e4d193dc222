"""The sums of the nodes of a call tree by name: what torch.profiler's table has.

They are made node by node by `_name_sums.c` where that is compiled (`analyze.compiled`), elsewhere over whole arrays.
As rows for DuckDB to group, the nodes took longer than the tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.compiled import if_compiled
from analyze.query.computed.call_paths import dense, pairs
from analyze.query.computed.nesting import Tree, check_sums

compiled = if_compiled("analyze.query.computed._name_sums")

Ints = npt.NDArray[np.int64]

_SUM = np.dtype(
    [(name, np.int32) for name in ("process", "name", "kind", "folded")]
    + [(name, np.int64) for name in ("calls", "total_ns", "self_ns", "gpu_ns", "total_gpu_ns")]
)
"""Of `_name_sums.c`."""


class NameSums(NamedTuple):
    """Sums by the first four, of which each combination is there once; all of shape n."""

    process: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    folded: npt.NDArray[np.bool_]
    calls: Ints
    total_ns: Ints
    self_ns: Ints
    gpu_ns: Ints
    total_gpu_ns: Ints


def by_name(tree: Tree, events: dict[str, Any]) -> NameSums:
    """The sums of the tree of events. Raises InputError for those that an int64 cannot hold."""
    check_sums(events["dur_ns"], tree.self_ns, tree.total_gpu_ns)
    return as_columns(tree, events) if compiled is None else node_by_node(tree, events)


def node_by_node(tree: Tree, events: dict[str, Any]) -> NameSums:
    """The same: compiled."""
    if compiled is None:
        raise ImportError("analyze.query.computed._name_sums is not built, or switched off")
    given = (events[c] for c in ("process", "name", "kind", "dur_ns"))
    of_nodes = (tree.self_ns, tree.folded, tree.gpu_ns, tree.total_gpu_ns)
    made = np.frombuffer(compiled.sums(len(tree.order), tree.order, *given, *of_nodes), _SUM)
    sums = NameSums(*(made[name] for name in NameSums._fields))
    return sums._replace(kind=sums.kind.astype(np.int8), folded=sums.folded.astype(np.bool_))


def as_columns(tree: Tree, events: dict[str, Any]) -> NameSums:
    """The same where nothing could be compiled, and what the compiled one is held to, in another order."""
    process, name, kind, length = (events[c][tree.order] for c in ("process", "name", "kind", "dur_ns"))
    labels = pairs(pairs(process, name), kind.astype(np.int64) * 2 + tree.folded)
    at, known = dense(labels)
    first = np.empty(len(known), np.int64)
    first[at] = np.arange(len(at))
    sums = [np.zeros(len(known), np.int64) for _ in range(4)]
    for into, values in zip(sums, (length, tree.self_ns, tree.gpu_ns, tree.total_gpu_ns), strict=True):
        np.add.at(into, at, values)
    calls = np.bincount(at, minlength=len(known))
    return NameSums(process[first], name[first], kind[first], tree.folded[first], calls, *sums)
