"""Time, GPU time and memory of operators, ranges and CUDA calls by name, as in torch.profiler's key_averages().

Its tree is another one than the table call_tree. CUDA calls and the profiler's overhead may hold operators. Those of no
operator stand on the main thread. Threads are known by their number alone, whatever their process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.call_sums import backward_times, sums
from analyze.derive.call_tree import ASYNC, CALL, KINDS, OP, OVERHEAD, PYTHON, RANGE, Events, segments
from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import dense, in_order, nest, pairs, self_times
from analyze.derive.numpy_columns import NULL, Ints, ints, last_if_null, text_codes, texts, values_at
from analyze.derive.replayed_calls import LAUNCHES_READS, WORK_READS, Replays, replays_and_tree
from analyze.derive.threads import OpenIntervals, distinct, find
from schemas.table_declaration import declare_table

if TYPE_CHECKING:
    import pyarrow as pa

_EVENTS = ("kind", "name", "pid", "tid", "correlation_id", "op_id", "start_ns", "dur_ns")
_WORK = ("op_id", "dur_ns", "forward_tid", "forward_start_ns")
READS = {
    "call_tree": _EVENTS,
    "captured_tree": _EVENTS,
    "graph_launches": LAUNCHES_READS,
    "call_ops": ("correlation_id", "op_id"),
    "gpu_work": tuple(dict.fromkeys((*_WORK, *WORK_READS))),
    "memory_events": ("device_type", "start_ns", "bytes"),
}
"""Columns that op_sums is computed from."""

_CPU_ALLOCATORS = ("cpu", "mkldnn")


def op_sums(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of op_sums, from the columns READS of a rank's tables."""
    import pyarrow as pa

    replays, call_tree, recorded = replays_and_tree(tables, _EVENTS)
    (code,), kinds = text_codes([call_tree.column("kind")])
    (name,), names = text_codes([call_tree.column("name")])
    kind = np.array([*(KINDS.index(k) for k in kinds.to_pylist()), -1], np.int8)[code]
    events = Events(kind, name, *(ints(call_tree, c) for c in _EVENTS[2:]))
    all_events, events = events, events.take(slice(recorded))
    events = events._replace(op_id=_op_ids(events, tables["call_ops"]))
    events = events._replace(tid=_threads(events))
    launched = _launched(events, ints(tables["gpu_work"], "op_id"), ints(tables["gpu_work"], "dur_ns"))
    backward = _backward(events, tables["gpu_work"])
    events, graph, replayed = _with_replays(events, all_events, replays)
    launched = np.append(launched, np.zeros(len(graph) - len(launched), np.int64))
    _add_replayed_work(events, graph, tables["gpu_work"], launched, backward)
    memory = [_changes(tables["memory_events"], events, on_gpu) for on_gpu in (True, False)]
    without = _sums(events, graph, replayed, launched, backward, memory, names, False)
    is_python = events.kind == PYTHON
    if not is_python.any():
        return pa.concat_tables([without, without.set_column(0, "python", pa.repeat(True, without.num_rows))])
    return pa.concat_tables([without, _sums(events, graph, replayed, launched, backward, memory, names, True)])


def _with_replays(events: Events, all_events: Events, replays: Replays) -> tuple[Events, Ints, Ints]:
    """Return the events with those that replays of CUDA graphs stand for, the graph of each (NULL: none) and its calls.

    `all_events` has captured events after those of the recording.
    """
    recorded = len(events.kind)
    if not replays:
        return events, np.full(recorded, NULL), np.ones(recorded, np.int64)
    parts, graphs, calls = [events], [np.full(recorded, NULL)], [np.ones(recorded, np.int64)]
    for graph, count in replays.counts.items():
        end = all_events.start + all_events.dur
        own = all_events.take(replays.members(all_events.tid, all_events.start, end, recorded, graph))
        # The calls of a capture launch nothing in a replay.
        own = own.take(np.isin(own.kind, (OP, RANGE, PYTHON)))
        parts.append(own._replace(op_id=np.full(len(own.kind), NULL)))
        graphs.append(np.full(len(own.kind), graph))
        calls.append(np.full(len(own.kind), count))
    found = Events(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return found, np.concatenate(graphs), np.concatenate(calls)


def _add_replayed_work(
    events: Events, graph: Ints, gpu_work: pa.Table, launched: Ints, backward: tuple[Ints, Ints, Ints]
) -> None:
    """Add the time of replays to that of the events that were captured (`launched`), and the links of backward work."""
    of_work, dur, tid, start = (ints(gpu_work, c) for c in ("graph", "dur_ns", "capture_tid", "capture_start_ns"))
    forward_tid, forward_start = (ints(gpu_work, c) for c in ("forward_tid", "forward_start_ns"))
    place_of_backward = np.cumsum(forward_start != NULL) - 1
    for number in np.unique(graph[graph != NULL]):
        own = np.flatnonzero((graph == number) & (events.kind != PYTHON))
        at = OpenIntervals(events.tid[own], events.start[own], events.start[own] + events.dur[own]).at
        work = np.flatnonzero(of_work == number)
        inside = values_at(own, at(tid[work], start[work]), missing=-1)
        np.add.at(launched, inside[inside >= 0], dur[work[inside >= 0]])
        is_backward = forward_start[work] != NULL
        places = place_of_backward[work[is_backward]]
        backward[0][places] = inside[is_backward]
        forward = at(forward_tid[work[is_backward]], forward_start[work[is_backward]])
        backward[1][places] = values_at(own, forward, missing=-1)


def _op_ids(events: Events, call_ops: pa.Table) -> Ints:
    """Return External ids; in files of torch 1.12 to 2.2, those of CUDA calls are replaced by the operator's."""
    ids, ops = (ints(call_ops, c) for c in READS["call_ops"])
    if not len(ids):
        return events.op_id
    of_call = find(ids, events.correlation_id)
    return np.where((events.kind == CALL) & (of_call >= 0), values_at(ops, of_call), events.op_id)


def _threads(events: Events) -> Ints:
    """Return the thread of each event: of a call of no operator, and of overhead, the main thread.

    That has the number of the least process of operators and ranges.
    """
    is_op = (events.kind == OP) | (events.kind == RANGE)
    pids = events.pid[is_op & (events.pid != NULL)]
    stray = np.flatnonzero((events.kind == CALL) | (events.kind == OVERHEAD))
    ops = distinct(events.op_id[is_op & (events.op_id > 0)])
    stray = stray[find(ops, events.op_id[stray]) < 0]
    if not len(stray) or not len(pids):
        return events.tid
    tid = events.tid.copy()
    tid[stray] = pids.min()
    return tid


def _launched(events: Events, op_id: Ints, dur: Ints) -> Ints:
    """Return the time of the GPU work with the External id of each operator or range."""
    linked = op_id > 0
    group, ids = dense(op_id[linked])
    total = np.zeros(len(ids) + 1, np.int64)
    np.add.at(total, group, dur[linked])
    is_op = (events.kind == OP) | (events.kind == RANGE)
    return total[np.where(is_op, find(ids, events.op_id), -1)]


def _backward(events: Events, gpu_work: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Return of each piece of work of the backward pass the event that launched it, the forward operator (-1 for none),
    and its time."""
    work = gpu_work.filter(gpu_work.column("forward_start_ns").is_valid())
    op_id, dur, tid, start = (ints(work, c) for c in _WORK)
    is_event = (events.kind == OP) | (events.kind == RANGE)
    rows = np.flatnonzero(is_event & (events.op_id > 0))
    rows = rows[np.argsort(events.op_id[rows], kind="stable")]
    launched = values_at(rows, find(events.op_id[rows], op_id), missing=-1)
    ops = np.flatnonzero(events.kind == OP)
    at = OpenIntervals(events.tid[ops], events.start[ops], events.start[ops] + events.dur[ops]).at(tid, start)
    return launched, values_at(ops, at, missing=-1), dur


def _changes(memory_events: pa.Table, events: Events, on_gpu: bool) -> Ints | None:
    """Return what was allocated less what was freed while each event ran, on any thread; None if nothing was recorded.

    Changes at its start and at its end are part of it.
    """
    if not memory_events.num_rows:
        return None
    (device,), devices = text_codes([memory_events.column("device_type")])
    counts = np.array([*((d in _CPU_ALLOCATORS) != on_gpu for d in devices.to_pylist()), False])[device]
    if not counts.any():
        return np.zeros(len(events.start), np.int64)
    at, size = (ints(memory_events, c)[counts] for c in ("start_ns", "bytes"))
    order = np.argsort(at, kind="stable")
    at, so_far = at[order], np.append(0, np.cumsum(np.where(size == NULL, 0, size)[order]))
    until = np.searchsorted(at, events.start + events.dur, "right")
    changed: Ints = so_far[until] - so_far[np.searchsorted(at, events.start, "left")]
    return changed


def _sums(
    events: Events,
    graph: Ints,
    replayed: Ints,
    launched: Ints,
    backward: tuple[Ints, Ints, Ints],
    memory: list[Ints | None],
    names: pa.Array,
    python: bool,
) -> pa.Table:
    """Return the rows of the tree with or without Python functions.

    Events of a `graph` took no time of a CPU when it was replayed, which `replayed` says how often.
    """
    import pyarrow as pa

    rows = np.flatnonzero(python | (events.kind != PYTHON))
    lane = dense(pairs(pairs(events.tid[rows], graph[rows]), events.kind[rows] == ASYNC))[0]
    of_rows = events if len(rows) == len(events.kind) else events.take(rows)
    order = in_order(lane, of_rows.start, (-of_rows.dur, of_rows.kind == CALL, last_if_null(of_rows.op_id)))
    rows, lane = rows[order], lane[order]
    del of_rows, order
    kind, name = events.kind[rows], events.name[rows]
    start, dur, gpu = events.start[rows], events.dur[rows], launched[rows]
    parent, last, _ = nest(segments(lane, kind), start, start + dur)
    place = np.full(len(events.kind) + 1, -1)
    place[rows] = np.arange(len(rows))
    backward_ns = backward_times(parent, last, place[backward[0]], place[backward[1]], backward[2])
    is_recorded = graph[rows] == NULL
    self_ns = self_times(parent, last, start, start + dur) * is_recorded
    # An event that is its parent's only child and has its name is one call with it, and launched what it launched.
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    folded = np.zeros(len(parent), bool)
    folded[child] = (np.bincount(above, minlength=len(parent))[above] == 1) & (name[child] == name[above])
    gpu[parent[folded]] = 0
    so_far = np.append(0, np.cumsum(gpu))
    total_gpu = so_far[last + 1] - so_far[:-1]
    del lane, start, parent, last, place, so_far  # Most memory is needed below.
    label, _ = dense(pairs(name, kind))
    n = int(label.max(initial=-1)) + 1
    one = np.zeros(n, np.int64)
    one[label] = np.arange(len(label))
    once = np.where(folded, 0, 1)
    calls, dur = once * replayed[rows], dur * is_recorded
    is_own = kind != ASYNC  # The range of an asynchronous collective takes no time of its thread.
    columns = {
        "python": pa.repeat(python, n),
        "kind": texts(kind[one], pa.array(KINDS)),
        "name": texts(name[one], names),
        "calls": sums(label, n, calls),
        "total_ns": sums(label, n, dur * once),
        "self_ns": sums(label, n, self_ns * is_own),
        "gpu_ns": sums(label, n, gpu),
        "total_gpu_ns": sums(label, n, total_gpu * once),
        "backward_ns": sums(label, n, backward_ns * once),
    }
    for device, changed in zip(("device", "cpu"), memory, strict=True):
        if changed is None:
            own = total = pa.nulls(n, pa.int64())
        else:
            of_all = changed[rows] * is_recorded
            below = np.zeros(len(rows), np.int64)
            np.add.at(below, above, of_all[child])
            own, total = sums(label, n, (of_all - below) * is_own), sums(label, n, of_all * once)
        columns |= {f"self_{device}_bytes": own, f"total_{device}_bytes": total}
    return pa.table(columns)


DERIVED = (
    Derived(
        declare_table(
            "op_sums",
            "a name of operators, ranges, CUDA calls or Python functions, added up as torch.profiler's key_averages()",
            ("python", "bool", "", "whether Python functions take self time from what is below them: filter on it"),
            ("kind", "string", "", "op, range, python (a Python function), call (CUDA), overhead or async"),
            ("name", "string", "", "name; that of a profiler step is ProfilerStep*"),
            ("calls", "int64", "", "calls; one that is the only child of its parent and has its name is one with it"),
            ("total_ns", "int64", "ns", "sum of durations; NULL if 64 bits may not hold it, as all that follow"),
            ("self_ns", "int64", "ns", "sum of durations without those of children, CUDA calls included; 0 of async"),
            ("gpu_ns", "int64", "ns", "GPU work with their External ids"),
            ("total_gpu_ns", "int64", "ns", "GPU work with their External ids or those of events below them"),
            (
                "backward_ns",
                "int64",
                "ns",
                "GPU work of the backward pass of it and of operators below it, launched outside of it",
            ),
            ("self_device_bytes", "int64", "B", "allocated - freed on GPUs, without children; NULL if not recorded"),
            ("total_device_bytes", "int64", "B", "allocated - freed on GPUs while they ran; NULL if not recorded"),
            ("self_cpu_bytes", "int64", "B", "allocated - freed in the CPU's memory, without children"),
            ("total_cpu_bytes", "int64", "B", "allocated - freed in the CPU's memory while they ran"),
        ),
        version=3,
        reads=READS,
        compute=op_sums,
    ),
)
