"""Operators of the forward pass that run again in the backward pass (activation checkpointing)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.forward_operators import NODE
from analyze.derive.interface import FULL, Derived
from analyze.derive.interval_nesting import firsts, pairs
from analyze.derive.numpy_columns import NULL, ints, text_codes
from analyze.derive.threads import OpenIntervals, distinct, find, outermost
from schemas.table_declaration import CPU, INTERVAL, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("pid", "tid", "name", "start_ns", "dur_ns", "input_dims")
_OPS = (*_COLUMNS, "sequence_number", "fwd_thread")
READS = {"cpu_ops": _OPS, "captured_ops": _OPS, f"{FULL}recomputed_ops": _COLUMNS}
"""Columns that recomputed_ops is computed from."""


def recomputed_ops(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of recomputed_ops, from the columns READS of a rank's tables.

    Inside of a node of the backward pass, an operator that will have a node of its own is one of a forward pass. It
    runs again if one of the same name and shapes ran before, outside of such nodes. A GPU-only block has the rows of
    its full block.
    """
    import pyarrow as pa

    ops = pa.concat_tables([tables["cpu_ops"], tables["captured_ops"]])
    if not ops.num_rows:
        return tables[f"{FULL}recomputed_ops"]
    (name,), names = text_codes([ops["name"]])
    is_node = np.array([*(n.startswith(NODE) for n in names.to_pylist()), False], bool)[name]
    tid, start, dur, sequence, fwd_thread = (
        ints(ops, c) for c in ("tid", "start_ns", "dur_ns", "sequence_number", "fwd_thread")
    )
    nodes = np.flatnonzero(is_node & (dur != NULL))
    is_op = ~is_node & (name >= 0) & (dur != NULL)
    own_node = is_op & (sequence != NULL) & ((fwd_thread == NULL) | (fwd_thread == 0))
    if not (find(distinct(tid[nodes]), tid[own_node]) >= 0).any():
        return ops.select(_COLUMNS)[:0]  # no checkpointing: nodes have threads of their own
    thread, end = pairs(ints(ops, "pid"), tid), start + dur
    outer = nodes[outermost(thread[nodes], start[nodes], end[nodes])]
    in_node = OpenIntervals(thread[outer], start[outer], end[outer]).around(thread, start, end) >= 0
    (shapes,), _ = text_codes([ops["input_dims"]])
    kind = pairs(name, shapes)
    first = np.flatnonzero(is_op & ~in_node)
    first = first[np.lexsort((start[first], kind[first]))]
    first = first[firsts(kind[first])]
    again = np.flatnonzero(own_node & in_node)
    place = find(kind[first], kind[again])
    again = again[(place >= 0) & (start[first[place]] < start[again])] if len(first) else again[:0]
    found = again[outermost(thread[again], start[again], end[again])]
    return ops.select(_COLUMNS).take(pa.array(found))


DERIVED = (
    Derived(
        declare_table(
            "recomputed_ops",
            "an outermost operator of the forward pass that runs again in the backward pass",
            *CPU,
            ("name", "string", "", "operator"),
            *INTERVAL,
            ("input_dims", "string", "", "shapes of its inputs, JSON"),
        ),
        version=1,
        reads=READS,
        compute=recomputed_ops,
    ),
)
