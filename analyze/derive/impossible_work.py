"""Find GPU work with impossible times: it overlaps on its stream, starts before its launch call, or is too long.

Pure functions over one rank's rows. `docs/definitions.md`, "False timeline", states the rules and their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analyze.derive.numpy_columns import NULL, Ints, Mask, ints

if TYPE_CHECKING:
    import pyarrow as pa

WORK_COLUMNS = ("pid", "device", "stream", "start_ns", "dur_ns", "correlation_id")
"""Columns of GPU work that the check reads."""
CALL_COLUMNS = ("pid", "api", "start_ns", "dur_ns", "correlation_id")
"""Columns of cuda_calls that it reads."""

LATE_END_NS = 20_000
"""How much later than the next piece of its stream a piece may end. Work of a stream completes in order, also with
programmatic dependent launch, where the later kernel waits for the earlier one; clocks of copies and whole-microsecond
traces are off by a few microseconds."""
OVERLAP_NS = 10_000_000
"""How long two pieces of a stream may overlap. With programmatic dependent launch, a kernel may start once the earlier
one triggers it, at most the earlier kernel's run time ahead; kernels that trigger others run for far less than this."""
EARLY_START_NS = 1_000_000
"""How much earlier than its launch call a piece may start: CUPTI and roctracer convert the GPU's clock to the host's
with errors of microseconds, at worst some hundred."""
BEYOND_NS = 1_000_000_000
"""How much longer than all CUDA calls together a piece may last: the last of them waits for the GPU."""
FAR_FROM_ZERO_NS = 3_600_000_000_000
"""How far from the file's time 0 the other work must lie for work at 0 to be false: recordings last seconds or minutes,
and files with relative clocks start near 0."""
BEFORE_NS = 1_000_000_000
"""How long before the recording false work must have ended; work that still runs or is queued at its start is valid."""
LATEST = int(np.iinfo(np.int64).max)

ZERO = "start at time 0 of the file, far from all other work"
EARLY = "start more than 1 ms before their launch call"
BEFORE = "ended before the recording began, which launched none of them"
TWICE = "are exact duplicates"
BEYOND = "last longer than the recording"
PAST_NEXT = "last past the next work on their stream"


class Calls(NamedTuple):
    """What the check needs of a rank's CUDA calls: the earliest start by correlation id, the span, the processes."""

    ids: Ints
    """Correlation ids of GPU work, ascending."""
    starts: Ints
    """The earliest start of a call with that id; LATEST without one."""
    first_ns: int
    last_ns: int
    one_process: bool


def read_calls(work: pa.Table, parts: Iterable[pa.Table]) -> Calls | None:
    """Summarise CUDA calls, tables with CALL_COLUMNS; None if there are none."""
    ids = np.sort(ints(work, "correlation_id"))
    ids = ids[(ids > 0) & np.append(True, ids[1:] != ids[:-1])[: len(ids)]]
    starts = np.full(len(ids), LATEST)
    first, last, pids = LATEST, NULL, set()
    for calls in parts:
        own, at = ints(calls, "correlation_id"), ints(calls, "start_ns")
        if not len(at):
            continue
        first = min(first, int(at.min()))
        last = max(last, int((at + np.maximum(ints(calls, "dur_ns"), 0)).max()))
        pid = ints(calls, "pid")
        pids |= {int(pid.min()), int(pid.max())}
        if len(ids):
            place = np.minimum(np.searchsorted(ids, own), len(ids) - 1)
            linked = (ids[place] == own) & ~_is_sync(calls)
            np.minimum.at(starts, place[linked], at[linked])
    return Calls(ids, starts, first, last, len(pids) == 1 and NULL not in pids) if pids else None


def impossible_work(
    work: pa.Table,
    calls: Calls | None,
    zero_ns: int,
    names: Callable[[Ints], Ints],
    recorded_from_ns: int | None = None,
) -> dict[str, Mask]:
    """Masks of the rows that cannot have run as the file says, by reason; a row has one reason, the first that holds.

    `work`: WORK_COLUMNS of all kernels, copies and fills of a rank. `zero_ns`: time 0 of the file, on the clock of the
    rows. `names`: numbers that tell the names of given rows apart; used only for rows that are equal otherwise.
    `recorded_from_ns`: when the recording began, if that is known.
    """
    pid, device, stream, start, dur, correlation = (ints(work, c) for c in WORK_COLUMNS)
    found: dict[str, Mask] = {}
    valid = np.ones(len(start), bool)

    def mark(reason: str, false: Mask) -> None:
        false = false & valid
        valid[false] = False
        if false.any():
            found[reason] = false

    mark(ZERO, _far_from_others(start, zero_ns, calls))
    if calls is not None:
        launched = _launch_starts(correlation, calls)
        early = launched > start + EARLY_START_NS
        # Where most work is early, the clocks differ; the work itself may be right.
        if 2 * np.count_nonzero(early & valid) <= np.count_nonzero((launched != NULL) & valid):
            mark(EARLY, early)
    if recorded_from_ns is not None:
        unlaunched = True if calls is None else _launch_starts(correlation, calls) == NULL
        mark(BEFORE, unlaunched & (start + np.maximum(dur, 0) < recorded_from_ns - BEFORE_NS))
    if (pid != NULL).all() or calls is None or calls.one_process:
        # With several processes in the file, equal streams and correlation ids may be different ones.
        mark(TWICE, _duplicates((pid, device, stream, start, dur, correlation), valid, names))
        mark(PAST_NEXT, _past_next((pid, device, stream), start, dur, correlation, valid))
    if calls is not None:
        mark(BEYOND, dur > calls.last_ns - calls.first_ns + BEYOND_NS)
    return found


def _is_sync(calls: pa.Table) -> Mask:
    """Whether each call is the GPU side of a synchronisation, which launches nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sync: Mask = pc.fill_null(pc.equal(calls.column("api").cast(pa.string()), "sync"), False).to_numpy()
    return sync


def _far_from_others(start: Ints, zero_ns: int, calls: Calls | None) -> Mask:
    """Rows at time 0 if all other work, or else all calls, are far from it."""
    at_zero = start == zero_ns
    others = start[~at_zero] if at_zero.any() else start[:0]
    if not len(others) and calls is not None:
        others = np.array([calls.first_ns])
    if len(others) and np.abs(others - zero_ns).min() > FAR_FROM_ZERO_NS:
        return at_zero
    return np.zeros(len(start), bool)


def _launch_starts(correlation: Ints, calls: Calls) -> Ints:
    """Of each row the earliest start of a call with its correlation id; NULL without such a call."""
    launched = np.full(len(correlation), NULL)
    if len(calls.ids):
        place = np.minimum(np.searchsorted(calls.ids, correlation), len(calls.ids) - 1)
        linked = (calls.ids[place] == correlation) & (calls.starts[place] != LATEST)
        launched[linked] = calls.starts[place[linked]]
    return launched


def _duplicates(columns: tuple[Ints, ...], valid: Mask, names: Callable[[Ints], Ints]) -> Mask:
    """All but the first of equal rows; rows with neither a length nor a correlation id may differ all the same."""
    start, dur, correlation = columns[3:]
    false = np.zeros(len(start), bool)
    rows = np.flatnonzero(valid & ((dur > 0) | (correlation > 0)))
    # Most starts differ; only rows of equal start are compared further.
    rows = rows[np.argsort(start[rows], kind="stable")]
    same = start[rows][1:] == start[rows][:-1]
    rows = np.sort(rows[np.append(same, False) | np.append(False, same)[: len(rows)]]) if len(rows) else rows
    keys = [c[rows] for c in columns]
    if _repeats(keys).any():
        false[rows[_repeats([*keys, names(rows)])]] = True
    return false


def _repeats(keys: Sequence[Ints]) -> Mask:
    """All but the first of the rows with equal keys."""
    order = np.lexsort(keys)  # stable
    repeated = np.zeros(len(order), bool)
    if len(order):
        repeated[order[1:]] = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    return repeated


def _past_next(track: tuple[Ints, Ints, Ints], start: Ints, dur: Ints, correlation: Ints, valid: Mask) -> Mask:
    """Rows that last past the next launch on their stream by more than programmatic dependent launch allows."""
    false = np.zeros(len(start), bool)
    device, stream = track[1:]
    # A length of 0 says nothing about the work before it.
    rows = np.flatnonzero(valid & (dur > 0) & (device != NULL) & (stream != NULL))
    if len(rows) < 2:
        return false
    end = start + dur
    rows = rows[np.lexsort((end[rows], start[rows], *(c[rows] for c in track)))]
    new_track = np.zeros(len(rows) - 1, bool)
    for column in track:
        new_track |= column[rows][1:] != column[rows][:-1]
    # The branches of a CUDA graph run side by side under the correlation id of its one launch.
    launch = correlation[rows]
    new_launch = new_track | (launch[1:] != launch[:-1]) | (launch[1:] <= 0)
    firsts = np.append(np.flatnonzero(new_launch) + 1, 0)
    following = firsts[np.cumsum(np.append(False, new_launch))]
    track_of = np.cumsum(np.append(False, new_track))
    has_next = (following > 0) & (track_of[following] == track_of)
    own, after = rows[has_next], rows[following[has_next]]
    suspects = _conflict(start, end, own, after)
    if suspects.any():
        # Rare: compared again with the next piece that is right itself.
        for number in np.unique(track_of[has_next][suspects]):
            on_track = rows[slice(*np.searchsorted(track_of, [number, number + 1]))]
            false[on_track] = _walk(start[on_track], end[on_track], correlation[on_track])
    return false


def _conflict(start: Ints, end: Ints, own: Ints, after: Ints) -> Mask:
    mask: Mask = (end[own] - start[after] > OVERLAP_NS) | (end[own] - end[after] > LATE_END_NS)
    return mask


def _walk(start: Ints, end: Ints, correlation: Ints) -> list[bool]:
    """Which pieces of one stream, in order, last past the next right one of another launch."""
    false = [False] * len(start)
    # Start, end and launch of the next right piece, and start and end of the next one that is of another launch.
    following: tuple[int, int, int] | None = None
    other: tuple[int, int] | None = None
    pieces = list(zip(start.tolist(), end.tolist(), correlation.tolist(), strict=True))
    for at in range(len(pieces) - 1, -1, -1):
        starts, ends, launch = pieces[at]
        same = following is not None and launch > 0 and launch == following[2]
        after = other if same or following is None else following[:2]
        if after is not None and (ends - after[0] > OVERLAP_NS or ends - after[1] > LATE_END_NS):
            false[at] = True
            continue
        following, other = (starts, ends, launch), after
    return false
