"""The events of an exported trace, each as JSON: rows of the tables, arrows, counters, critical path and names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.trace import critical_path_events as critical_path
from analyze.trace.counters import changes, counter_tracks
from analyze.trace.tracks import ALLOCATOR, Tracks, overflow_lanes

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_BATCH = 10_000
_MOST_NS = 1 << 62
ALLOCATIONS = "(FROM memory_events WHERE allocated_bytes IS NOT NULL)"
"""SQL of allocator events. Other rows are from Nsight Systems: allocations by the driver, some at time 0."""


class Scope(NamedTuple):
    """The part of a run to export, and the tracks of its events."""

    engine: Engine
    base_ns: int
    from_ns: int
    to_ns: int | None
    tracks: Tracks

    def overlapping(self) -> str:
        """Return SQL for events that overlap the window; one of 0 ns must start in it."""
        before = "true" if self.to_ns is None else f"start_ns < {self.to_ns}"
        return f"{before} AND (start_ns + coalesce(dur_ns, 0) > {self.from_ns} OR start_ns >= {self.from_ns})"

    def rows(self, sql: str, uses: Iterable[str] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of SQL; `uses` names the SQL modules that it reads."""
        result = self.engine.execute(sql, uses)
        while batch := result.fetchmany(_BATCH):
            yield from batch


def events_of(scope: Scope, with_counters: bool, with_path: bool) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield kinds of events with their JSON, in the order of the file. Logs and dumps come after the recorded events.

    Names come last: only processes and threads with events get one.
    """
    for of_table in (_cpu_ops, _ranges, _calls, _os_calls, _kernels, _copies, _allocations):
        yield "events", of_table(scope)
    yield "flows", _flows(scope)
    if with_counters:
        yield "counters", _counters(scope)
    for name, (category, sql) in _LOGGED.items():
        yield "events", _logged(scope, name, category, sql)
    if with_path:
        yield "overlay", _critical_path(scope)
    yield "names", _names(scope)


@lru_cache(maxsize=1 << 16)
def _text(text: str | None) -> str:
    return json.dumps(text if text is not None else "")


def _us(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def _args(**values: Any) -> str:
    """Return JSON of the values that are not None. An underscore in a name becomes a space."""
    return "{" + ",".join(f'"{n.replace("_", " ")}":{v}' for n, v in values.items() if v is not None) + "}"


def _complete(
    scope: Scope,
    cat: str,
    name: str | None,
    where: tuple[int, int],
    start: int,
    dur: int | None,
    args: str,
    ph: str = "X",
) -> str:
    pid, tid = where
    length = "" if dur is None else f'"dur":{_us(dur)},'
    return (
        f'{{"ph":"{ph}","cat":"{cat}","name":{_text(name)},"pid":{pid},"tid":{tid},'
        f'"ts":{_us(start - scope.base_ns)},{length}"args":{args}}}'
    )


def _own_thread(tid: int | None, where: tuple[int, int]) -> int | None:
    """Return the thread id if the event is on an overflow thread, for those who read the trace again."""
    return None if tid == where[1] else tid


def _cpu_ops(scope: Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, {scope.tracks.columns('cpu_ops')}, start_ns, dur_ns, op_id, sequence_number, fwd_thread,"
        f" record_function_id, input_dims, input_types, concrete_inputs, cpu_ops.tid"
        f" FROM cpu_ops WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for name, pid, tid, start, dur, op, sequence, thread, function, dims, types, inputs, own in scope.rows(sql):
        where = scope.tracks.draw(pid, tid, start, dur)
        args = _args(
            External_id=op, Sequence_number=sequence, Fwd_thread_id=thread, Record_function_id=function,
            Input_Dims=dims, Input_type=types, Concrete_Inputs=inputs, thread_id=_own_thread(own, where),
        )  # fmt: skip
        yield _complete(scope, "cpu_op", name, where, start, dur, args)


_RANGE_CATEGORIES = {
    "gpu_annotation": "gpu_user_annotation",
    "python_function": "python_function",
    "overhead": "overhead",
}


def _ranges(scope: Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, origin, {scope.tracks.columns('ranges')},"
        " device, stream, start_ns, dur_ns, op_id, python_id, python_parent_id, domain, ranges.tid"
        f" FROM ranges WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for name, origin, pid, tid, device, stream, start, dur, op, python, parent, domain, own in scope.rows(sql):
        where = scope.tracks.draw(pid, tid, start, dur)
        args = _args(
            External_id=op, Python_id=python, Python_parent_id=parent, device=device, stream=stream,
            domain=_maybe(domain), thread_id=_own_thread(own, where),
        )  # fmt: skip
        yield _complete(scope, _RANGE_CATEGORIES.get(origin, "user_annotation"), name, where, start, dur, args)


_CALL_CATEGORIES = {"driver": "cuda_driver", "sync": "cuda_sync"}


def _calls(scope: Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, api, {scope.tracks.columns('cuda_calls')}, start_ns, dur_ns, correlation_id, op_id,"
        f" cuda_calls.tid FROM cuda_calls WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for name, api, pid, tid, start, dur, correlation, op, own in scope.rows(sql):
        where = scope.tracks.draw(pid, tid, start, dur)
        args = _args(External_id=op, correlation=correlation, thread_id=_own_thread(own, where))
        yield _complete(scope, _CALL_CATEGORIES.get(api, "cuda_runtime"), name, where, start, dur, args)


def _os_calls(scope: Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, {scope.tracks.columns('os_calls')}, start_ns, dur_ns, stack FROM os_calls"
        f" WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for name, pid, tid, start, dur, stack in scope.rows(sql):
        where = scope.tracks.draw(pid, tid, start, dur)
        yield _complete(scope, "os_call", name, where, start, dur, _args(stack=_maybe(stack)))


def _kernels(scope: Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, {scope.tracks.columns('kernels')}, start_ns, dur_ns, device, stream,"
        " correlation_id, op_id, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_mem_bytes,"
        " blocks_per_sm, occupancy_pct, graph_id, graph_node_id, annotation, collective, in_elems, out_elems, dtype,"
        " group_size, group_name, group_ranks, seq, group_desc, in_splits, out_splits, peer"
        f" FROM kernels WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for row in scope.rows(sql):
        name, pid, tid, start, dur, device, stream, correlation, op = row[:9]
        registers, shared, per_sm, occupancy, graph, node, annotation, *collective = row[15:]
        args = _args(
            External_id=op, device=device, stream=stream, correlation=correlation, registers_per_thread=registers,
            shared_memory=shared, blocks_per_SM=per_sm, grid=_dims(row[9:12]), block=_dims(row[12:15]), graph_id=graph,
            graph_node_id=node, name=_maybe(annotation),
        )  # fmt: skip
        if occupancy is not None:
            args = f'{args[:-1]},"est. achieved occupancy %":{occupancy}}}'
        if collective[0] is not None:
            said, in_elems, out_elems, dtype, size, group, ranks, seq, what, sent, received, peer = collective
            args = args[:-1] + "," + _args(
                Collective_name=_text(said), In_msg_nelems=in_elems, Out_msg_nelems=out_elems,
                Group_size=size, dtype=_maybe(dtype), In_split_size=_maybe(sent), Out_split_size=_maybe(received),
                Process_Group_Name=_maybe(group), Process_Group_Description=_maybe(what),
                Process_Group_Ranks=_maybe(ranks), Seq=seq,
                **{"Src_Rank" if said.endswith("recv") else "Dst_Rank": peer},
            )[1:]  # fmt: skip
        where = scope.tracks.draw(pid, tid, start, dur)
        yield _complete(scope, "kernel", name, where, start, dur, args)


def _maybe(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _dims(sizes: Sequence[int | None]) -> str | None:
    return None if None in sizes else json.dumps(list(sizes))


def _copies(scope: Scope) -> Iterator[str]:
    from analyze.derive.work_names import memcpy_name, memset_name

    sql = (
        "SELECT 'gpu_memcpy', kind, src_memory, dst_memory,"
        f" {scope.tracks.columns('memcpys')}, start_ns, dur_ns,"
        " device, stream, correlation_id, op_id, bytes, graph_id, graph_node_id, annotation, src_device, dst_device"
        f" FROM memcpys WHERE {scope.overlapping()}"
        " UNION ALL SELECT 'gpu_memset', NULL, NULL, dst_memory,"
        f" {scope.tracks.columns('memsets')}, start_ns, dur_ns,"
        " device, stream, correlation_id, op_id, bytes, graph_id, graph_node_id, annotation, NULL, NULL"
        f" FROM memsets WHERE {scope.overlapping()}"
    )
    for cat, kind, src, dst, *row in scope.rows(sql):
        name = memcpy_name(kind, src, dst) if cat == "gpu_memcpy" else memset_name(dst)
        pid, tid, start, dur, device, stream, correlation, op, size, graph, node, said, source, target = row
        args = _args(
            External_id=op, device=device, stream=stream, correlation=correlation, bytes=size, graph_id=graph,
            graph_node_id=node, name=_maybe(said), fromDevice=source, toDevice=target,
        )  # fmt: skip
        where = scope.tracks.draw(pid, tid, start, dur)
        yield _complete(scope, cat, name, where, start, dur, args)


def _allocations(scope: Scope) -> Iterator[str]:
    """Yield allocator events as torch.profiler writes them: instant events."""
    from analyze.sources.chrome.category_columns import ALLOCATOR_DEVICES

    types = {name: number for number, name in ALLOCATOR_DEVICES.items()}
    before = "" if scope.to_ns is None else f" AND start_ns < {scope.to_ns}"
    sql = (
        f"SELECT {scope.tracks.process()}, start_ns, device_type, device, addr, bytes, allocated_bytes, reserved_bytes"
        f" FROM {ALLOCATIONS} WHERE start_ns >= {scope.from_ns}{before} ORDER BY rank, start_ns, file_row"
    )
    for pid, start, kind, device, address, size, allocated, reserved in scope.rows(sql):
        pid, tid = scope.tracks.draw(pid, ALLOCATOR, start, 0)
        args = _args(
            Device_Type=types.get(kind, -1), Device_Id=device, Addr=address, Bytes=size,
            Total_Allocated=allocated, Total_Reserved=reserved,
        )  # fmt: skip
        yield (
            f'{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":{pid},"tid":{tid},'
            f'"ts":{_us(start - scope.base_ns)},"args":{args}}}'
        )


_ARROW = ('"ph":"s"', '"ph":"f","bp":"e"')
"""JSON of both ends of an arrow."""


def _flows(scope: Scope) -> Iterator[str]:
    """Yield arrows from each launch call to the first GPU work with its correlation id, if both are in scope."""
    calls, work = _first(scope, "cuda_calls", "api <> 'sync'"), _first(scope, "gpu_work", "true")
    sql = (
        f"SELECT c.event, w.event FROM ({calls}) c JOIN ({work}) w USING (rank, correlation_id)"
        " SEMI JOIN (SELECT * FROM gpu_work WHERE call_start_ns IS NOT NULL) USING (rank, correlation_id)"
        " ORDER BY rank, c.event.start_ns, correlation_id"
    )
    for number, ends in enumerate(scope.rows(sql), 1):
        common = f'"cat":"ac2g","name":"ac2g","id":{number}'
        for ph, event in zip(_ARROW, ends, strict=True):
            pid, tid = scope.tracks.draw(**event)
            yield f'{{{ph},{common},"pid":{pid},"tid":{tid},"ts":{_us(event["start_ns"] - scope.base_ns)}}}'


def _first(scope: Scope, table: str, condition: str) -> str:
    """Return SQL of the first event of each correlation id in scope."""
    pid, tid = scope.tracks.of(table)
    event = f"{{'pid': {pid}, 'tid': {tid}, 'start_ns': start_ns, 'dur_ns': dur_ns}}"
    return (
        f"SELECT rank, correlation_id, arg_min({event}, start_ns) AS event FROM {table}"
        f" WHERE correlation_id > 0 AND {condition} AND {scope.overlapping()} GROUP BY rank, correlation_id"
    )


def _critical_path(scope: Scope) -> Iterator[str]:
    """Yield the pieces of the critical path on tracks of their own, and arrows between them.

    The Perfetto UI attaches an arrow to the last slice that began on the thread, even if that has ended. So arrows go
    from the start of a piece to the start of the next one.
    """
    path = [critical_path.Piece(*row) for row in scope.rows(critical_path.SQL.format(condition=scope.overlapping()))]
    numbers = critical_path.number_tracks(path)
    # The Perfetto UI shows the number after the name.
    pid = scope.tracks.add("critical path", [f"{track} lane" for track in numbers]).pid
    for p in path:
        args = _args(kind=_text(p.kind), place=_text(p.track))
        yield _complete(scope, "critical_path", p.title, (pid, numbers[p.track]), p.start_ns, p.dur_ns, args)
    for number, ends in enumerate(critical_path.arrows(path), 1):
        for ph, p in zip(_ARROW, ends, strict=True):
            yield (
                f'{{{ph},"cat":"critical_path","name":"critical path","id":{number},"pid":{pid},'
                f'"tid":{numbers[p.track]},"ts":{_us(p.start_ns - scope.base_ns)}}}'
            )


_LOGGED = {
    "torch.compile": (
        "torch_compile",
        "SELECT rank, 'rank ' || rank AS track, start_ns, dur_ns, name, {'compile id': compile_id} AS args"
        " FROM compile_phases WHERE dur_ns IS NOT NULL",
    ),
    "flight recorder": (
        "flight_recorder",
        "SELECT rank, concat('rank ', rank, ' group ', concat_ws(' ', group_name, group_desc)) AS track,"
        " created_ns AS start_ns, operation AS name, CASE WHEN state = 'completed'"
        " THEN greatest(coalesce(completed_ns, started_ns, created_ns) - created_ns, 0) END AS dur_ns,"
        " {'seq': seq, 'state': state, 'input sizes': in_sizes, 'input types': in_dtypes} AS args FROM flight_records"
        " WHERE created_ns IS NOT NULL",
    ),
}
"""Processes for what logs and dumps say: their category, and SQL of slices. One without a duration did not end."""


def _logged(scope: Scope, name: str, category: str, sql: str) -> Iterator[str]:
    """Yield the slices of one of _LOGGED, on tracks of their own."""
    order = "rank, track, start_ns, dur_ns DESC, name"
    found = f"SELECT track, start_ns, dur_ns, name, args FROM ({sql}) WHERE {scope.overlapping()} ORDER BY {order}"
    rows = list(scope.rows(found))
    of_track = {track: number for number, track in enumerate(dict.fromkeys(row[0] for row in rows))}
    spans = [(of_track[track], 0, start, _MOST_NS if dur is None else dur) for track, start, dur, *_ in rows]
    lanes = overflow_lanes(sorted(spans, key=lambda span: (*span[:3], -span[3])))
    places = [(track, lanes.get(span, 0)) for (track, *_), span in zip(rows, spans, strict=True)]
    used = sorted(set(places), key=lambda place: (of_track[place[0]], place[1]))
    if not used:
        return
    process = scope.tracks.add(name, [f"{track}{' overlap' * (lane > 0)}" for track, lane in used])
    threads = {place: number for place, (number, _) in zip(used, process.threads, strict=True)}
    for (_, start, dur, shown, values), place in zip(rows, places, strict=True):
        args = json.dumps({key: value for key, value in values.items() if value is not None})
        where = process.pid, threads[place]
        yield _complete(scope, category, shown, where, start, dur, args, "B" if dur is None else "X")


def _counters(scope: Scope) -> Iterator[str]:
    for counter in counter_tracks(scope.tracks.gpu(), scope.tracks.process()):
        for (pid, series), rows in groupby(scope.rows(counter.sql, counter.uses), key=lambda row: row[:2]):
            # The Perfetto UI names the track after the counter and the series.
            common = f'"ph":"C","cat":"tracequarry","name":{_text(counter.name)},"pid":{scope.tracks.use(pid)},"tid":0'
            for at, value in changes(((at, value) for _, _, at, value, *_ in rows), scope.from_ns, scope.to_ns):
                shown = counter.text(value)
                yield f'{{{common},"ts":{_us(at - scope.base_ns)},"args":{{{_text(series)}:{shown}}}}}'


def _names(scope: Scope) -> Iterator[str]:
    """Yield the names of processes and threads, and the order in which they are shown."""
    for order, (pid, name, threads) in enumerate(scope.tracks.processes()):
        yield _metadata("process_name", pid, 0, f'"name":{_text(name)}')
        yield _metadata("process_sort_index", pid, 0, f'"sort_index":{order}')
        for index, (tid, thread) in enumerate(threads):
            yield _metadata("thread_name", pid, tid, f'"name":{_text(thread)}')
            yield _metadata("thread_sort_index", pid, tid, f'"sort_index":{index}')


def _metadata(name: str, pid: int, tid: int, args: str) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"ts":0,"args":{{{args}}}}}'
