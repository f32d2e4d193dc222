"""The critical path of a rank: the chain of CPU time, launches, GPU work and waits that a window's length consists of.

A pure function over one rank's tables. docs/critical-path.md states the rules; `path_graph` follows the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import dense, in_order
from analyze.derive.numpy_columns import (
    BATCH_ROWS,
    NULL,
    Codes,
    Ints,
    Mask,
    equals,
    ints,
    nullable,
    text_codes,
    texts,
    values_at,
)
from analyze.derive.path_graph import (
    COMMUNICATION,
    COPY,
    GAP,
    KERNEL,
    LAUNCH,
    NONE,
    PIECES,
    PROFILER,
    STREAM_WAIT,
    SYNC,
    Activities,
    Graph,
    Pieces,
    Syncs,
    Window,
    Work,
    before_on_stream,
    merge_activities,
)
from analyze.derive.path_overhead import Overhead, cut_out, profiler_time
from analyze.derive.threads import distinct, find
from schemas.api_roles import matching_rule
from schemas.table_declaration import INTERVAL, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

_CALL = ("call_tid", "call_start_ns", "call_dur_ns", "call_name")
READS = {
    "gpu_work": ("kind", "name", "device", "stream", "start_ns", "dur_ns", "correlation_id", "op_id", *_CALL),
    "kernel_names": ("name", "short_name", "family"),
    "cuda_calls": ("pid", "tid", "api", "name", "start_ns", "dur_ns", "correlation_id"),
    "cpu_ops": ("tid", "start_ns", "dur_ns"),
    "ranges": ("origin", "tid", "name", "start_ns", "dur_ns"),
    "recorded_steps": ("turn", "start_ns", "dur_ns", "next_ns"),
}
"""Columns that the path is computed from."""


class GpuWork(NamedTuple):
    """Kernels, copies and fills in the order of their starts; all of one shape."""

    device: Ints
    stream: Ints
    correlation: Ints
    op: Ints
    start: Ints
    end: Ints
    kind: npt.NDArray[np.int8]
    """KERNEL, COMMUNICATION or COPY."""
    name: Codes
    """Short name of a kernel, else what it is: kernel, memcpy or memset."""
    call_tid: Ints
    """Of the call that launched it; NULL where not known."""
    call_start: Ints
    call_dur: Ints
    call_name: Codes


class Calls(NamedTuple):
    """CUDA calls; all of one shape."""

    tid: Ints
    start: Ints
    end: Ints
    ended: Mask
    """Whether thread and end are known."""
    correlation: Ints
    name: Codes
    role: npt.NDArray[np.object_]
    """As schemas/api_roles.toml has it; "" for those that do not wait."""


class Rank(NamedTuple):
    """What the paths of a rank go through."""

    gpu_work: GpuWork
    graph: Graph
    windows: list[Window]
    turns: Ints
    """The step that each window is; NULL for the whole recording."""
    overhead: Overhead
    names: dict[int, Codes]
    """Names of the items of pieces, by kind of piece."""
    texts: pa.Array
    """The text of each code."""


def critical_path(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of critical_path, from the columns READS of a rank's tables.

    One path is that of the whole recording, from the first to the last thing that operators, CUDA calls and GPU work
    did; the others are those of its steps. Pieces lie end to end, so their lengths add up to that of the window.
    """
    rank = _read(tables)
    paths = [cut_out(path, rank.overhead) for path in rank.graph.paths(rank.windows)]
    counts = [len(path.start) for path in paths]
    none = Pieces(*(np.empty(0, np.int64) for _ in Pieces._fields))
    pieces = Pieces(*map(np.concatenate, zip(none, *paths, strict=True)))
    del paths
    name = np.full(len(pieces.kind), -1, np.int32)
    for kind, of_items in rank.names.items():
        rows = np.flatnonzero(pieces.kind == kind)
        name[rows] = of_items[pieces.item[rows]]
    return _table(rank.gpu_work, np.repeat(rank.turns, counts), counts, pieces, texts(name, rank.texts))


def _read(tables: Mapping[str, pa.Table]) -> Rank:
    import pyarrow as pa

    named = [tables["gpu_work"][c] for c in ("kind", "name", "call_name")]
    named += [tables["kernel_names"][c] for c in ("name", "short_name")]
    codes, dictionary = text_codes([*named, tables["cuda_calls"]["name"], tables["ranges"]["name"]])
    kinds, of_work, of_launches, full, short, of_calls, of_ranges = codes
    gpu_work = _gpu_work(tables, kinds, of_work, of_launches, full, short)
    ids = distinct(gpu_work.correlation)
    role = _roles(of_calls, dictionary)
    wanted = _launch_or_wait(tables["cuda_calls"], role[of_calls] != "", ids)
    calls = _calls(tables["cuda_calls"].filter(pa.array(wanted)), of_calls[wanted], role)
    work = _work(gpu_work, calls)
    blocks = np.isin(calls.role, ("sync", "copy", "copy_async"))
    syncs, sync_name = _syncs(work, gpu_work.correlation, calls, np.flatnonzero(calls.ended & blocks))
    is_launch = (calls.correlation > 0) & (find(ids, calls.correlation) >= 0)
    busy = _busy(tables["cpu_ops"], calls, np.flatnonzero(calls.ended & (blocks | is_launch)))
    overhead = profiler_time(tables, of_ranges)
    names_of = {
        **dict.fromkeys((KERNEL, GAP, STREAM_WAIT), gpu_work.name),
        LAUNCH: gpu_work.call_name,
        SYNC: sync_name,
        PROFILER: overhead.name,
    }
    windows, turns = _windows(tables["recorded_steps"], work, busy)
    return Rank(gpu_work, Graph(work, syncs, busy), windows, turns, overhead, names_of, dictionary)


def _gpu_work(
    tables: Mapping[str, pa.Table], kinds: Codes, names: Codes, calls: Codes, full: Codes, short: Codes
) -> GpuWork:
    """Return GPU work, given the codes of its texts, and those of the names and short names in kernel_names."""
    found = tables["gpu_work"]
    device, stream, correlation, op, start, dur, call_tid, call_start, call_dur = (
        ints(found, c) for c in ("device", "stream", "correlation_id", "op_id", "start_ns", "dur_ns", *_CALL[:3])
    )
    is_kernel = equals(found["kind"], "kernel")
    # A row of kernel_names for each name; the last is that of kernels without one.
    place = np.full(max(full.max(initial=-1), names.max(initial=-1)) + 2, -1)
    place[full] = np.arange(len(full))
    row = place[np.where(is_kernel, names, -1)]
    communicates = np.append(equals(tables["kernel_names"]["family"], "communication"), False)
    name = np.where(row >= 0, np.append(np.where(short < 0, full, short), np.int32(-1))[row], kinds)
    kind = np.where(is_kernel, np.where(communicates[row], COMMUNICATION, KERNEL), COPY).astype(np.int8)
    end = start + np.maximum(dur, 0)
    order = in_order(np.zeros(len(start), np.int64), start, (end, correlation == NULL, correlation))
    columns = (device, stream, correlation, op, start, end, kind, name, call_tid, call_start, call_dur, calls)
    return GpuWork._make(column[order] for column in columns)


def _roles(names: Codes, dictionary: pa.Array) -> npt.NDArray[np.object_]:
    """Return the role of each text among these names if calls with it may wait or make a stream wait, else ""."""
    role = np.full(len(dictionary) + 1, "", object)
    for code in np.unique(names[names >= 0]).tolist():
        rule = matching_rule(dictionary[code].as_py())
        role[code] = rule.role if rule and rule.role != "launch" else ""
    return role


def _launch_or_wait(calls: pa.Table, waits: Mask, ids: Ints) -> Mask:
    """Return which calls launch GPU work, of these correlation ids, or may wait: few of all."""
    found = [np.empty(0, bool)]
    for first in range(0, calls.num_rows, BATCH_ROWS):
        rows = calls.slice(first, BATCH_ROWS)
        correlation = ints(rows, "correlation_id")
        launches = (correlation > 0) & (find(ids, correlation) >= 0)
        found.append((launches | waits[first : first + BATCH_ROWS]) & ~equals(rows["api"], "sync"))
    return np.concatenate(found)


def _calls(rows: pa.Table, name: Codes, role: npt.NDArray[np.object_]) -> Calls:
    tid, start, dur, correlation = (ints(rows, c) for c in ("tid", "start_ns", "dur_ns", "correlation_id"))
    ended = (tid != NULL) & (dur != NULL)
    return Calls(tid, start, start + np.where(ended, dur, 0), ended, correlation, name, role[name])


def _work(gpu_work: GpuWork, calls: Calls) -> Work:
    """Return GPU work for the graph.

    The trace does not say which stream cudaStreamWaitEvent makes wait. It may be the stream into which the thread
    launches next, if the call is later than the launch before into that stream.
    """
    tid, launch, launch_dur = gpu_work.call_tid, gpu_work.call_start, gpu_work.call_dur
    stream = dense(gpu_work.device)[0] * (len(launch) + 1) + dense(gpu_work.stream)[0]
    waited = np.full(len(tid), NULL)
    waits = np.flatnonzero((calls.role == "stream_wait") & (calls.tid != NULL))
    for number in np.unique(calls.tid[waits]):
        rows = np.flatnonzero(tid == number)
        starts = np.append(np.sort(calls.start[waits[calls.tid[waits] == number]]), NULL)
        waited[rows] = starts[np.searchsorted(starts[:-1], launch[rows], "right") - 1]
    may_wait = (waited != NULL) & (waited >= values_at(launch, before_on_stream(stream)))
    launch_end = np.where((launch == NULL) | (launch_dur == NULL), NULL, launch + launch_dur)
    return Work(stream, gpu_work.start, gpu_work.end, tid, launch, launch_end, may_wait)


def _syncs(work: Work, correlation: Ints, calls: Calls, blocks: Ints) -> tuple[Syncs, Codes]:
    """Return which of the calls that may block waited for GPU work, and their names.

    A copy waits for its own work; another call for the work that ended last before it returned.
    """
    start, end = calls.start[blocks], calls.end[blocks]
    by_end = np.argsort(work.end, kind="stable")
    awaited = np.append(by_end, NONE)[np.searchsorted(work.end[by_end], end, "right") - 1]
    copies = np.flatnonzero(calls.role[blocks] != "sync")
    # Of several pieces with the id of one launch, the last.
    by_id = np.argsort(correlation, kind="stable")
    place = np.searchsorted(correlation[by_id], calls.correlation[blocks[copies]], "right") - 1
    own = np.append(by_id, NONE)[place]
    linked = values_at(correlation, own) == calls.correlation[blocks[copies]]
    awaited[copies] = np.where(linked & (values_at(work.launch_start, own) != NULL), own, NONE)
    done = values_at(work.end, awaited)
    waited = np.flatnonzero((start < done) & (done <= end))
    waited = waited[np.lexsort((start[waited], end[waited]))]
    return Syncs(calls.tid[blocks[waited]], end[waited], awaited[waited]), calls.name[blocks[waited]]


def _busy(ops: pa.Table, calls: Calls, busy: Ints) -> Activities:
    """Return what keeps threads busy: operators, and the calls that launch or may block; others only ask."""
    parts = [Activities(calls.tid[busy], calls.start[busy], calls.end[busy])]
    for first in range(0, ops.num_rows, BATCH_ROWS):  # most lie within others
        tid, start, dur = (ints(ops.slice(first, BATCH_ROWS), c) for c in ("tid", "start_ns", "dur_ns"))
        some = (tid != NULL) & (dur != NULL)
        parts.append(merge_activities(tid[some], start[some], start[some] + dur[some]))
    return merge_activities(*map(np.concatenate, zip(*parts, strict=True)))


def _windows(steps: pa.Table, work: Work, busy: Activities) -> tuple[list[Window], Ints]:
    """Return the windows that have a path, and the turn of the step that each is; NULL for the whole recording.

    A step goes from its start to that of the next; the last one to its end, or to that of the last GPU work launched in
    it if that is later.
    """
    starts = [c.min() for c in (work.start, work.launch_start[work.launch_start != NULL], busy.start) if len(c)]
    ends = [c.max() for c in (work.end, busy.end) if len(c)]
    if not ends:
        return [], np.empty(0, np.int64)
    windows = [Window(int(min(starts)), int(max(ends)), on_cpu=False)]
    for start, dur, following in zip(*(steps[c].to_pylist() for c in ("start_ns", "dur_ns", "next_ns")), strict=True):
        if following is not None:
            windows.append(Window(start, following, on_cpu=True))
            continue
        launched = (work.launch_start >= start) & (work.launch_start < start + dur)
        last = int(work.end[launched].max(initial=start + dur))
        windows.append(Window(start, last, on_cpu=last == start + dur))
    return windows, np.append(NULL, ints(steps, "turn"))


def _table(gpu_work: GpuWork, turns: Ints, counts: Sequence[int], pieces: Pieces, name: pa.Array) -> pa.Table:
    """Return the rows of critical_path, given the pieces of all paths and how many each has."""
    import pyarrow as pa

    kind, tid, item, start, end = pieces
    on_gpu = np.isin(kind, (KERNEL, GAP, STREAM_WAIT, LAUNCH))
    of = np.where(on_gpu, item, NONE)
    kind = np.where(kind == KERNEL, np.append(gpu_work.kind, KERNEL)[of], kind)
    places = (("device", pa.int32()), ("stream", None), ("correlation", None), ("op", None))
    device, stream, correlation, op = (nullable(values_at(getattr(gpu_work, c), of), t) for c, t in places)
    return pa.table(
        {
            "turn": nullable(turns, pa.int32()),
            "seq": pa.array(np.concatenate([np.empty(0, np.int64), *map(np.arange, counts)])),
            "kind": texts(kind, pa.array(PIECES)),
            "name": name,
            "tid": nullable(tid),
            "device": device,
            "stream": stream,
            "correlation_id": correlation,
            "op_id": op,
            "start_ns": pa.array(start),
            "dur_ns": pa.array(end - start),
        }
    )


DERIVED = (
    Derived(
        declare_table(
            "critical_path",
            "a piece of the critical path of a rank's recording or a step of it (docs/critical-path.md)",
            ("turn", "int32", "", "the step, as in recorded_steps; NULL for the path of the whole recording"),
            ("seq", "int64", "", "position in the path, from 0"),
            ("kind", "string", "", "cpu, launch, kernel, communication, copy, gap, stream_wait, sync, profiler, other"),
            ("name", "string", "", "kernel (short), launch call, call that waited, or profiler overhead; NULL of cpu"),
            ("tid", "int64", "", "thread, of a piece on the CPU"),
            ("device", "int32", "", "GPU, of GPU work and its launch"),
            ("stream", "int64", "", "CUDA stream, of these"),
            ("correlation_id", "int64", "", "joins these to the CUDA call that launched them"),
            ("op_id", "int64", "", "the operator that launched them"),
            *INTERVAL,
        ),
        version=1,
        reads=READS,
        compute=critical_path,
    ),
)
