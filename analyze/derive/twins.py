"""The twin of each piece of GPU work: the same work of the same program in the full block.

A program's steps are recorded in two blocks: GPU only, then in full. Both run the same work in the same order, so that
each kernel, copy and fill of the first has its twin in the second. `docs/blocks.md` explains the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from analyze.derive.interface import Derived
from analyze.derive.numpy_columns import NULL, Ints, ints, nullable, text_codes, values_at
from analyze.derive.threads import find
from schemas import table_declaration
from schemas.table_declaration import GPU, INTERVAL, LINK, declare_table, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

COLLECTIVE = tuple(name for name, *_ in table_declaration.COLLECTIVE)
"""Columns of kernels that PyTorch writes: only the full block has them."""
_WORK = ("device", "stream", "start_ns", "dur_ns", "correlation_id")
_KINDS = ("kernel", "memcpy", "memset")
_SHAPES = {
    "kernels": ("name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    "memcpys": ("kind", "bytes"),
    "memsets": ("bytes",),
}
"""Columns in which a piece of work and its twin are equal."""
LAUNCHED_BY = (
    "op_id", "call_name", "call_tid", "graph", "capture_tid", "capture_start_ns", "op_name", "op_tid", "op_start_ns",
    "op_dur_ns", "outer_name", "outer_start_ns", "forward_tid", "forward_start_ns", "forward_op", "phase",
    "phase_start_ns", "flop_call", "sized_call",
)  # fmt: skip
"""Columns of gpu_work that are taken from the twin. The time of the launch is not: it is of the other block."""
READS = {
    **{table: (*_WORK, *same) for table, same in _SHAPES.items()},
    "recorded_steps": ("turn",),
    "full.kernels": (*_WORK, *_SHAPES["kernels"], *COLLECTIVE),
    "full.memcpys": (*_WORK, *_SHAPES["memcpys"]),
    "full.memsets": (*_WORK, *_SHAPES["memsets"]),
    "full.gpu_work": ("call_start_ns",),
    "full.recorded_steps": ("start_ns", "dur_ns"),
}
"""Columns that twins is computed from."""
FULL_WORK_READS = ("device", "stream", "start_ns", "correlation_id", *LAUNCHED_BY)
"""Columns of the full block's gpu_work that gpu_work takes."""

MOST_EDITS = 1000
"""Insertions and deletions of a stream up to which twins are looked for: time and memory grow with their square."""
ALIKE = 0.5
"""Share of the work of a stream that must be equal in the stream of the same id."""
_PIECE = 256
"""Work compared at once."""


def twins(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of twins, from the columns READS of a rank's tables: one for each row of gpu_work, in its order.

    Per device and stream, the sequences of work of the two blocks are aligned by longest common subsequence. Work is
    equal if its name, grid and block are, of copies kind and bytes. A stream may have another id in the full block. If
    both blocks have steps, the i-th step of the GPU-only block is expected to be the i-th of the full one; after the
    last, the first follows again.
    """
    import pyarrow as pa

    own, full = _Work(tables, ""), _Work(tables, "full.")
    own_lane, full_lane = _numbered(own.lane, full.lane)
    own_code, full_code = _numbered(*_shapes(tables))
    step = _launch_steps(tables)
    steps, full_steps = (tables[block + "recorded_steps"].num_rows for block in ("", "full."))
    twin, turn = np.full(len(own.start), -1), np.full(len(own.start), NULL)
    for lane, full_of_lane in _same_streams(own, own_lane, own_code, full, full_lane, full_code):
        mine, theirs = own.order[own_lane[own.order] == lane], full.order[full_lane[full.order] == full_of_lane]
        expected, turns = _expected(theirs, step[theirs], steps, full_steps)
        left, right = common_subsequence(own_code[mine], full_code[expected])
        twin[mine[left]], turn[mine[left]] = expected[right], turns[right]
    schema = row_schema(_TABLE)
    of_kernels = np.where(twin < full.counts[0], twin, -1)
    found = {
        "kind": np.repeat(list(_KINDS), own.counts),
        "device": nullable(own.lane[0]),
        "stream": nullable(own.lane[1]),
        "start_ns": nullable(own.start),
        "dur_ns": nullable(own.dur),
        "correlation_id": nullable(own.correlation_id),
        "turn": nullable(turn),
        "full_stream": nullable(values_at(full.lane[1], twin)),
        "full_start_ns": nullable(values_at(full.start, twin)),
        "full_dur_ns": nullable(values_at(full.dur, twin)),
        "full_correlation_id": nullable(values_at(full.correlation_id, twin)),
        "full_call_start_ns": nullable(values_at(ints(tables["full.gpu_work"], "call_start_ns"), twin)),
        **{c: _take(tables["full.kernels"][c], of_kernels) for c in COLLECTIVE},
    }
    return pa.table(found).select(schema.names).cast(schema)


def with_twins(work: pa.Table, twins: pa.Table, full_work: pa.Table) -> pa.Table:
    """Return gpu_work with the columns LAUNCHED_BY of the twins; rows without a twin keep their own.

    `twins` has a row for each row of `work`, in its order.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known = [ints(full_work, c) for c in ("device", "stream", "start_ns", "correlation_id")]
    wanted = [ints(twins, c) for c in ("device", "full_stream", "full_start_ns", "full_correlation_id")]
    known_number, wanted_number = _numbered(known, wanted)
    numbers, first = np.unique(known_number, return_index=True)
    place = values_at(first, find(numbers, wanted_number))
    has = (wanted[2] != NULL) & (place >= 0)
    for name in LAUNCHED_BY:
        at = work.schema.get_field_index(name)
        field = work.schema.field(at)
        taken = _take(full_work[name], np.where(has, place, -1))
        own = work[name].cast(taken.type)
        found = pc.if_else(pa.array(has), taken, own)
        work = work.set_column(at, field, found.cast(field.type))
    return work


def common_subsequence(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Return the places in `a` and in `b` of a longest common subsequence of two sequences of numbers.

    Myers' greedy algorithm (An O(ND) Difference Algorithm, 1986), after the common start and end are taken off. If more
    than MOST_EDITS insertions and deletions are needed, only the common start and end are returned.
    """
    least = min(len(a), len(b))
    first = _agree(a[:least], b[:least])
    last = _agree(a[first:][::-1][: least - first], b[first:][::-1][: least - first])
    inner_a, inner_b = a[first : len(a) - last], b[first : len(b) - last]
    middle = _myers(inner_a.tolist(), inner_b.tolist())
    left, right = (np.array([pair[side] for pair in middle], np.int64) + first for side in (0, 1))
    start = np.arange(first)
    return (
        np.concatenate([start, left, np.arange(len(a) - last, len(a))]),
        np.concatenate([start, right, np.arange(len(b) - last, len(b))]),
    )


def _agree(a: Ints, b: Ints) -> int:
    """Return how many elements two sequences of one length have in common at their start."""
    differs = a != b
    return int(np.argmax(differs)) if differs.any() else len(a)


def _myers(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """Return the pairs of places of a longest common subsequence; none if it needs more than MOST_EDITS edits."""
    if not a or not b or abs(len(a) - len(b)) > MOST_EDITS:
        return []
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(len(a) + len(b), MOST_EDITS) + 1):
        history.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            while x < len(a) and y < len(b) and a[x : x + _PIECE] == b[y : y + _PIECE]:
                x, y = x + _PIECE, y + _PIECE
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            x = min(x, len(a), len(b) + k)
            furthest[k] = x
            if x >= len(a) and x - k >= len(b):
                return _walked_back(history, len(a), len(b))
    return []


def _walked_back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """Return the pairs on the path that ends at (x, y)."""
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], x - y
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if down else k - 1
        from_x = furthest[before]
        from_y = from_x - before
        while x > max(from_x, 0) and y > max(from_y, 0):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


class _Work:
    """Kernels, copies and fills of a block, one after the other."""

    def __init__(self, tables: Mapping[str, pa.Table], block: str):
        def joined(column: str) -> Ints:
            return np.concatenate([ints(tables[block + table], column) for table in _SHAPES])

        self.counts = [tables[block + table].num_rows for table in _SHAPES]
        self.start, self.dur, self.correlation_id = map(joined, ("start_ns", "dur_ns", "correlation_id"))
        self.lane = [joined("device"), joined("stream")]
        # Work that starts together is in the order of its launches.
        self.order = np.lexsort((self.correlation_id, self.start))


def _shapes(tables: Mapping[str, pa.Table]) -> tuple[list[Ints], list[Ints]]:
    """Return the columns that are equal for work of the same kind, of the GPU-only block and of the full one."""
    found: tuple[list[list[Ints]], list[list[Ints]]] = ([], [])
    width = max(map(len, _SHAPES.values())) + 1
    for number, (table, same) in enumerate(_SHAPES.items()):
        blocks = [tables[table], tables["full." + table]]
        texts = text_codes([block[same[0]] for block in blocks])[0] if same[0] in ("name", "kind") else None
        for at, block in enumerate(blocks):
            values = [np.full(block.num_rows, number)]
            values += [] if texts is None else [texts[at].astype(np.int64)]
            values += [ints(block, c) for c in (same if texts is None else same[1:])]
            found[at].append(values + [np.zeros(block.num_rows, np.int64)] * (width - len(values)))
    own, full = ([np.concatenate(parts) for parts in zip(*of_block, strict=True)] for of_block in found)
    return own, full


def _numbered(a: Sequence[Ints], b: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return numbers of the rows of two sets of columns; equal rows have equal numbers."""
    number = np.zeros(len(a[0]) + len(b[0]), np.int64)
    for column in zip(a, b, strict=True):
        values, places = np.unique(np.concatenate(column), return_inverse=True)
        number = np.unique(number * len(values) + places, return_inverse=True)[1]
    return number[: len(a[0])], number[len(a[0]) :]


def _same_streams(
    own: _Work, own_lane: Ints, own_code: Ints, full: _Work, full_lane: Ints, full_code: Ints
) -> list[tuple[int, int]]:
    """Return the streams of the GPU-only block, each with the stream of the full block that runs the same work.

    That is the stream with its id, unless most of its work differs: a program may create its streams again. Others are
    paired by what they run (ALIKE), the most alike first, and equal ones in the order in which they begin.
    """
    lanes, full_lanes = np.unique(own_lane), np.unique(full_lane)
    codes = int(max(own_code.max(initial=-1), full_code.max(initial=-1))) + 1

    def shares(work_lane: Ints, code: Ints, lane: int) -> npt.NDArray[np.float64]:
        counts = np.bincount(code[work_lane == lane], minlength=codes)
        return counts / counts.sum()

    def begins(work: _Work, work_lane: Ints, lane: int) -> int:
        return int(work.start[work_lane == lane].min())

    def device(work: _Work, work_lane: Ints, lane: int) -> int:
        return int(work.lane[0][work_lane == lane][0])

    mine = {int(lane): shares(own_lane, own_code, lane) for lane in lanes}
    theirs = {int(lane): shares(full_lane, full_code, lane) for lane in full_lanes}
    found = [(lane, lane) for lane in mine if lane in theirs and _alike(mine[lane], theirs[lane]) > ALIKE]
    left, full_left = mine.keys() - {a for a, _ in found}, theirs.keys() - {b for _, b in found}
    candidates = sorted(
        (-round(alike, 3), begins(own, own_lane, a), begins(full, full_lane, b), a, b)
        for a in left
        for b in full_left
        if (alike := _alike(mine[a], theirs[b])) > 0 and device(own, own_lane, a) == device(full, full_lane, b)
    )
    for *_, a, b in candidates:
        if a in left and b in full_left:
            found.append((a, b))
            left, full_left = left - {a}, full_left - {b}
    return found


def _alike(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Return how alike two streams are, by the shares of each kind of work: from 0 to 1."""
    return float(np.minimum(a, b).sum())


def _launch_steps(tables: Mapping[str, pa.Table]) -> Ints:
    """Return the step in which each piece of work of the full block was launched; NULL if it is not known.

    For work that was launched after the last step it is the number of steps.
    """
    start, dur = (ints(tables["full.recorded_steps"], c) for c in ("start_ns", "dur_ns"))
    call = ints(tables["full.gpu_work"], "call_start_ns")
    turn = np.searchsorted(start, call, "right") - 1
    after = (turn == len(start) - 1) & (call >= start[-1:].sum() + dur[-1:].sum())
    return np.where((call == NULL) | (turn < 0), NULL, turn + after)


def _expected(theirs: Ints, step: Ints, steps: int, full_steps: int) -> tuple[Ints, Ints]:
    """Return the rows of the full block that a stream of the GPU-only block should repeat, and their steps there.

    `theirs`: the rows of the stream in the full block, and `step` their steps.
    """
    step = np.maximum.accumulate(step)  # A stream runs work in the order of its launches.
    if not steps or not full_steps or not (step != NULL).any():
        return theirs, np.full(len(theirs), NULL)
    parts = [theirs[step == NULL], *(theirs[step == turn % full_steps] for turn in range(steps))]
    parts.append(theirs[step == full_steps])
    turns = np.repeat(np.array([NULL, *range(steps), NULL]), [len(part) for part in parts])
    return np.concatenate(parts), turns


def _take(column: pa.ChunkedArray, places: Ints) -> pa.Array:
    """Return the values of a column at places; NULL where the place is -1."""
    import pyarrow as pa

    taken = column.take(pa.array(np.where(places < 0, 0, places), mask=places < 0))
    return taken.combine_chunks().cast(pa.string()) if pa.types.is_dictionary(column.type) else taken


_TABLE = declare_table(
    "twins",
    "a kernel, memcpy or memset of a GPU-only block, with its twin in the full block of the same program",
    ("kind", "string", "", "kernel, memcpy or memset"),
    *GPU[1:],
    *INTERVAL,
    LINK[0],
    ("turn", "int32", "", "step that launched it, as in recorded_steps; NULL if its twin is in no step"),
    ("full_stream", "int64", "", "stream of the twin; NULL without a twin, as all that follow"),
    ("full_start_ns", "int64", "ns", "start of the twin"),
    ("full_dur_ns", "int64", "ns", "duration of the twin"),
    ("full_correlation_id", "int64", "", "correlation id of the twin"),
    ("full_call_start_ns", "int64", "ns", "start of the launch call of the twin, on the clock of the full block"),
    *table_declaration.COLLECTIVE,
)

DERIVED = (Derived(_TABLE, version=3, reads=READS, compute=twins, of_gpu_block=True),)
