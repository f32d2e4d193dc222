"""The operators and ranges of a rank, which may have launched GPU work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.derive.event_names import RANGES, are_async, without_step_numbers
from analyze.derive.numpy_columns import NULL, Ints, Mask, ints, text_codes

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("tid", "name", "start_ns", "dur_ns", "op_id")
"""Columns of cpu_ops that are read; of ranges `origin`, too."""
_ROWS = 1 << 22
"""Operators that are looked at together."""


class Events(NamedTuple):
    """Operators and ranges."""

    op_id: Ints
    tid: Ints
    """NULL is a thread of its own."""
    start: Ints
    end: Ints
    name: npt.NDArray[np.int32]
    """Number of the name."""
    is_op: Mask

    def take(self, rows: Ints | Mask) -> Events:
        """Return these rows."""
        op_id, tid, start, end, name, is_op = self
        return Events(op_id[rows], tid[rows], start[rows], end[rows], name[rows], is_op[rows])


def _events(rows: int) -> Events:
    """Return this many rows of NULLs."""
    ids = np.full(rows, NULL)
    return Events(ids, ids, ids, ids, np.full(rows, -1, np.int32), np.ones(rows, bool))


NO_EVENTS, MISSING = _events(0), _events(1)
"""A last row, which the place -1 finds."""


def read_events(tables: Mapping[str, pa.Table]) -> tuple[Iterator[Events], pa.Array]:
    """Yield the operators and then the ranges of a rank that have a length, in parts, and return the names.

    Ranges are those of PyTorch; that of an asynchronous collective ends on another thread and is left out.
    """
    ops, ranges = tables["cpu_ops"], tables["ranges"]
    (origin,), origins = text_codes([ranges.column("origin")])
    rows = np.flatnonzero(np.array([text in RANGES for text in origins.to_pylist()] + [False])[origin])
    ranges = ranges if len(rows) == ranges.num_rows else ranges.take(rows)
    codes, names = text_codes([ops.column("name"), ranges.column("name")])
    is_async = are_async(names)
    if is_async[codes[1]].any():
        rows = np.flatnonzero(~is_async[codes[1]])
        ranges, codes[1] = ranges.take(rows), codes[1][rows]
    renamed = without_step_numbers(names).dictionary_encode()
    numbers = np.append(renamed.indices.to_numpy(), -1)

    def parts() -> Iterator[Events]:
        for table, of_table, is_op in ((ops, codes[0], True), (ranges, codes[1], False)):
            for first in range(0, table.num_rows, _ROWS):
                rows = table.slice(first, _ROWS)
                start, dur = ints(rows, "start_ns"), ints(rows, "dur_ns")
                name = numbers[of_table[first : first + _ROWS]]
                found = Events(
                    ints(rows, "op_id"), ints(rows, "tid"), start, start + dur, name, np.full(len(start), is_op)
                )
                yield found if (dur != NULL).all() else found.take(dur != NULL)

    return parts(), renamed.dictionary


def together(parts: list[Events]) -> Events:
    """Return events one after another."""
    return Events(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
