"""A Chrome trace of a run, written from the store: opens in the Perfetto UI, and reads back as the same rows.

Events go to the file as they come out of the tables, one after the other, so a trace of any size takes little memory.
Times are microseconds with three decimals, written from the integers; they count from the first event, and the zero
stands in `baseTimeNanoseconds`, as torch.profiler writes it.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from analyze import trace_overlay
from analyze.errors import InputError
from analyze.trace_counters import changes, counter_tracks

if TYPE_CHECKING:
    from analyze.engine import Engine
    from analyze.store import Store

_BATCH = 10_000
_COMPRESSION = 5
"""Of gzip: half the time of the default, and files 5 % larger."""

_TIMED = ("kernels", "memcpys", "memsets", "cuda_calls", "cpu_ops", "ranges")

RANK_STRIDE = 10_000_000
"""Where several ranks are written, the processes of rank r get numbers from r times this: their own may be the same,
and the Perfetto UI reads 32 bits. No process number of Linux is as high."""

_GPU_NUMBERS = 9_000_000
"""What is added to a device's number where it could be that of a process, too."""


class Exported(NamedTuple):
    """What was written."""

    run_id: str
    events: int
    counters: int
    flows: int


class _Scope(NamedTuple):
    """Which part of which run, and how its processes are numbered."""

    engine: Engine
    base_ns: int
    from_ns: int
    to_ns: int | None
    stride: int
    """What a rank adds to the number of a process; 0 for one rank."""
    gpu_numbers: int
    """What is added to the number of a device, which is a process in a Chrome trace."""

    def cpu(self) -> str:
        """SQL of the numbers of the process and the thread on the CPU."""
        number = f"rank * {self.stride} + coalesce(pid, 0) % {self.stride}" if self.stride else "coalesce(pid, 0)"
        return f"{number} AS pid, coalesce(tid, 0) AS tid"

    def gpu(self) -> str:
        """SQL of the number of a GPU."""
        return f"rank * {self.stride} + {self.gpu_numbers} + coalesce(device, 0)"

    def overlapping(self) -> str:
        """SQL for events that touch the window; `start_ns` inside it is enough for one of 0 ns."""
        before = "true" if self.to_ns is None else f"start_ns < {self.to_ns}"
        return f"{before} AND (start_ns + coalesce(dur_ns, 0) > {self.from_ns} OR start_ns >= {self.from_ns})"

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        result = self.engine.connection.execute(sql)
        while batch := result.fetchmany(_BATCH):
            yield from batch


def export(
    stores: Sequence[Store],
    output: Path,
    *,
    where: str | None = None,
    from_ms: float | None = None,
    to_ms: float | None = None,
    counters: bool = True,
    critical_path: bool = False,
) -> Exported:
    """Write one run as a Chrome trace; gzip-compressed if the name ends in .gz.

    `where`: SQL over the columns of runs and rank, which must leave one run. `from_ms`, `to_ms`: a window, in ms from
    the first event of what is left; events that reach into it are whole. `counters`: whether tracks of queue depth,
    copy bandwidth, GPU busy and allocated memory are added. `critical_path`: whether the critical path of each rank is
    drawn over it, as a track of its pieces and arrows between them. Raises InputError.
    """
    from analyze.engine import Engine

    engine = Engine(stores, where=where)
    if len(engine.run_ids) != 1:
        some = ", ".join(engine.run_ids[:3]) + (", ..." if len(engine.run_ids) > 3 else "")
        found = f"there are {len(engine.run_ids)} ({some})" if engine.run_ids else "there is none"
        raise InputError(f"trace: one run makes a trace, and {found}; choose with --where \"run_id = '...'\"")
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise InputError(f"trace: --from-ms {from_ms:g} is not before --to-ms {to_ms:g}")
    scope = _scope(engine, from_ms or 0.0, to_ms)
    with _writing(output) as file:
        return _write(scope, file, counters, critical_path)


def _scope(engine: Engine, from_ms: float, to_ms: float | None) -> _Scope:
    engine.sql("SELECT 1")  # The blocks, for the counters.
    tables = " UNION ALL ".join(f"SELECT min(start_ns) AS first_ns FROM {t}" for t in (*_TIMED, "memory_events"))
    row = engine.connection.execute(f"SELECT min(first_ns) FROM ({tables})").fetchone()
    if row is None or row[0] is None:
        raise InputError(f"trace: {engine.run_ids[0]} has no timed events: there is nothing to draw")
    clashes, ranks = engine.connection.execute(
        "SELECT (SELECT count(*) FROM"
        " (SELECT pid FROM cpu_ops UNION SELECT pid FROM cuda_calls UNION SELECT pid FROM ranges)"
        " JOIN (SELECT DISTINCT device FROM gpu_work) ON pid = device), (SELECT count(DISTINCT rank) FROM run_groups)"
    ).fetchall()[0]
    base = int(row[0])
    return _Scope(
        engine,
        base,
        base + round(from_ms * 1e6),
        None if to_ms is None else base + round(to_ms * 1e6),
        RANK_STRIDE if ranks > 1 else 0,
        _GPU_NUMBERS if ranks > 1 or clashes else 0,
    )


@contextmanager
def _writing(output: Path) -> Iterator[TextIO]:
    """The file, in place when it is whole."""
    part = output.with_name(output.name + ".part")
    try:
        with part.open("wb") as raw:
            if output.name.endswith(".gz"):
                # Without a time in it, the same trace is the same file.
                with (
                    gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed,
                    io.TextIOWrapper(packed, "utf-8") as f,
                ):
                    yield f
            else:
                with io.TextIOWrapper(raw, "utf-8") as f:
                    yield f
        part.replace(output)
    except OSError as e:
        raise InputError(f"{output}: cannot be written: {e.strerror}") from e
    finally:
        part.unlink(missing_ok=True)


def _write(scope: _Scope, file: TextIO, with_counters: bool, with_path: bool) -> Exported:
    run = scope.engine.sql("SELECT * FROM runs").arrow().to_pylist()[0]
    file.write(_header(scope, run) + '"traceEvents": [\n')
    counts = {"events": 0, "counters": 0, "flows": 0}
    first = True
    parts: tuple[tuple[str, Iterable[str]], ...] = (
        ("events", _cpu_ops(scope)),
        ("events", _ranges(scope)),
        ("events", _calls(scope)),
        ("events", _kernels(scope)),
        ("events", _copies(scope)),
        ("flows", _flows(scope)),
        ("counters", _counters(scope) if with_counters else ()),
        ("overlay", _critical_path(scope) if with_path else ()),
        ("names", _names(scope)),
    )
    for kind, events in parts:
        written = 0
        for event in events:
            file.write(event if first else ",\n" + event)
            first = False
            written += 1
        counts[kind] = counts.get(kind, 0) + written
    file.write("\n]}\n")
    # A flow is two events.
    return Exported(run["run_id"], counts["events"], counts["counters"], counts["flows"] // 2)


def _header(scope: _Scope, run: dict[str, Any]) -> str:
    """The object around the events up to their list, with what the readers of this toolkit look for."""
    fields: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": scope.base_ns}
    fields["run_id"] = run["run_id"]
    if run["host"]:
        fields["host_name"] = run["host"]
    if run["torch_version"]:
        fields["pytorch_version"] = run["torch_version"]
    ranks = scope.engine.connection.execute("SELECT DISTINCT rank FROM run_groups").fetchall()
    if len(ranks) == 1:
        fields["distributedInfo"] = {"rank": ranks[0][0]} | (
            {"world_size": run["world_size"]} if run["world_size"] else {}
        )
    if run["gpu_name"]:
        fields["deviceProperties"] = [{"id": 0, "name": run["gpu_name"]}]
    return json.dumps(fields)[:-1] + ",\n"


@lru_cache(maxsize=1 << 16)
def _text(text: str | None) -> str:
    return json.dumps(text if text is not None else "")


def _us(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def _args(**values: Any) -> str:
    """JSON of the values that are there; names with a space are written with an underscore here."""
    return "{" + ",".join(f'"{n.replace("_", " ")}":{v}' for n, v in values.items() if v is not None) + "}"


def _complete(
    scope: _Scope, cat: str, name: str | None, pid: Any, tid: Any, start: int, dur: int | None, args: str
) -> str:
    length = "" if dur is None else f'"dur":{_us(dur)},'
    return (
        f'{{"ph":"X","cat":"{cat}","name":{_text(name)},"pid":{pid},"tid":{tid},'
        f'"ts":{_us(start - scope.base_ns)},{length}"args":{args}}}'
    )


def _cpu_ops(scope: _Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, {scope.cpu()}, start_ns, dur_ns, op_id, sequence_number, fwd_thread, record_function_id,"
        f" input_dims, input_types, concrete_inputs FROM cpu_ops WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for name, pid, tid, start, dur, op, sequence, thread, function, dims, types, inputs in scope.rows(sql):
        args = _args(
            External_id=op, Sequence_number=sequence, Fwd_thread_id=thread, Record_function_id=function,
            Input_Dims=dims, Input_type=types, Concrete_Inputs=inputs,
        )  # fmt: skip
        yield _complete(scope, "cpu_op", name, pid, tid, start, dur, args)


_RANGE_CATEGORIES = {
    "gpu_annotation": "gpu_user_annotation",
    "python_function": "python_function",
    "overhead": "overhead",
}


def _ranges(scope: _Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, origin, {scope.cpu()}, {scope.gpu()},"
        " coalesce(stream, 0), device, stream, start_ns, dur_ns, op_id, python_id, python_parent_id, domain"
        f" FROM ranges WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for row in scope.rows(sql):
        name, origin, pid, tid, gpu, gpu_tid, device, stream, start, dur, op, python, parent, domain = row
        on_gpu = origin == "gpu_annotation"
        args = _args(
            External_id=op, Python_id=python, Python_parent_id=parent, device=device if on_gpu else None,
            stream=stream if on_gpu else None, domain=_text(domain) if domain else None,
        )  # fmt: skip
        place = (gpu, gpu_tid) if on_gpu else (pid, tid)
        yield _complete(scope, _RANGE_CATEGORIES.get(origin, "user_annotation"), name, *place, start, dur, args)


_CALL_CATEGORIES = {"driver": "cuda_driver", "sync": "cuda_sync"}


def _calls(scope: _Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, api, {scope.cpu()}, start_ns, dur_ns, correlation_id, op_id FROM cuda_calls"
        f" WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for name, api, pid, tid, start, dur, correlation, op in scope.rows(sql):
        args = _args(External_id=op, correlation=correlation)
        yield _complete(scope, _CALL_CATEGORIES.get(api, "cuda_runtime"), name, pid, tid, start, dur, args)


def _kernels(scope: _Scope) -> Iterator[str]:
    sql = (
        f"SELECT name, {scope.gpu()} AS pid, coalesce(stream, 0) AS tid, start_ns, dur_ns, device, stream,"
        " correlation_id, op_id, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_mem_bytes,"
        " blocks_per_sm, occupancy_pct, graph_id, collective, in_elems, out_elems, dtype, group_size, group_name,"
        f" group_ranks, seq FROM kernels WHERE {scope.overlapping()} ORDER BY rank, start_ns"
    )
    for row in scope.rows(sql):
        name, pid, tid, start, dur, device, stream, correlation, op = row[:9]
        registers, shared, per_sm, occupancy, graph, *collective = row[15:]
        args = _args(
            External_id=op, device=device, stream=stream, correlation=correlation, registers_per_thread=registers,
            shared_memory=shared, blocks_per_SM=per_sm, grid=_dims(row[9:12]), block=_dims(row[12:15]), graph_id=graph,
        )  # fmt: skip
        if occupancy is not None:
            args = f'{args[:-1]},"est. achieved occupancy %":{occupancy}}}'
        if collective[0] is not None:
            said, in_elems, out_elems, dtype, size, group, ranks, seq = collective
            args = args[:-1] + "," + _args(
                Collective_name=_text(said), In_msg_nelems=in_elems, Out_msg_nelems=out_elems,
                dtype=_maybe(dtype), Group_size=size, Process_Group_Name=_maybe(group),
                Process_Group_Ranks=_maybe(ranks), Seq=seq,
            )[1:]  # fmt: skip
        yield _complete(scope, "kernel", name, pid, tid, start, dur, args)


def _maybe(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _dims(sizes: Sequence[int | None]) -> str | None:
    return None if None in sizes else json.dumps(list(sizes))


def _copies(scope: _Scope) -> Iterator[str]:
    sql = (
        "SELECT 'gpu_memcpy', memcpy_name(kind, src_memory, dst_memory),"
        f" {scope.gpu()} AS pid, coalesce(stream, 0) AS tid, start_ns, dur_ns,"
        " device, stream, correlation_id, op_id, bytes, graph_id, src_device, dst_device"
        f" FROM memcpys WHERE {scope.overlapping()}"
        " UNION ALL SELECT 'gpu_memset', memset_name(dst_memory),"
        f" {scope.gpu()} AS pid, coalesce(stream, 0) AS tid, start_ns, dur_ns,"
        " device, stream, correlation_id, op_id, bytes, graph_id, NULL, NULL"
        f" FROM memsets WHERE {scope.overlapping()}"
    )
    for cat, name, pid, tid, start, dur, device, stream, correlation, op, size, graph, source, target in scope.rows(
        sql
    ):
        args = _args(
            External_id=op, device=device, stream=stream, correlation=correlation, bytes=size, graph_id=graph,
            fromDevice=source, toDevice=target,
        )  # fmt: skip
        yield _complete(scope, cat, name, pid, tid, start, dur, args)


def _flows(scope: _Scope) -> Iterator[str]:
    """Arrows from a launch call to the first work of its correlation id; both ends must be drawn."""
    gpu = f"{scope.gpu()} AS pid, coalesce(stream, 0) AS tid"
    sql = (
        "WITH work AS (SELECT * FROM gpu_work WHERE correlation_id IS NOT NULL),"
        f" targets AS (SELECT rank, correlation_id, min(start_ns) AS at_ns, arg_min({_place(gpu)}, start_ns) AS place"
        f" FROM work WHERE {scope.overlapping()} GROUP BY rank, correlation_id),"
        f" sources AS (SELECT rank, correlation_id, min(start_ns) AS at_ns, arg_min({{'pid': rank * {scope.stride} +"
        " coalesce(pid, 0), 'tid': coalesce(tid, 0)}, start_ns) AS place FROM cuda_calls"
        f" WHERE api <> 'sync' AND correlation_id IS NOT NULL AND {scope.overlapping()} GROUP BY rank, correlation_id)"
        " SELECT row_number() OVER (), s.place.pid, s.place.tid, s.at_ns, t.place.pid, t.place.tid, t.at_ns"
        " FROM sources s JOIN targets t USING (rank, correlation_id)"
    )
    for number, pid, tid, at, gpu, stream, begins in scope.rows(sql):
        common = f'"cat":"ac2g","name":"ac2g","id":{number}'
        yield f'{{"ph":"s",{common},"pid":{pid},"tid":{tid},"ts":{_us(at - scope.base_ns)}}}'
        yield f'{{"ph":"f","bp":"e",{common},"pid":{gpu},"tid":{stream},"ts":{_us(begins - scope.base_ns)}}}'


def _critical_path(scope: _Scope) -> Iterator[str]:
    trace_overlay.make(scope.engine)
    sql = trace_overlay.sql(scope.gpu(), scope.stride, scope.overlapping())
    path = trace_overlay.pieces(scope.rows(sql))
    yield from _process(trace_overlay.TRACK, "critical path", 0)
    for p in path:
        yield _complete(scope, "critical_path", p.name, trace_overlay.TRACK, p.rank, p.start_ns, p.dur_ns, "{}")
    for number, before, after in trace_overlay.arrows(path):
        common = f'"cat":"critical_path","name":"critical path","id":{number}'
        # Just inside the piece, so that the arrow leaves from what is drawn there.
        end = before.start_ns + max(before.dur_ns - 1, 0)
        yield f'{{"ph":"s",{common},"pid":{before.pid},"tid":{before.tid},"ts":{_us(end - scope.base_ns)}}}'
        begin = _us(after.start_ns - scope.base_ns)
        yield f'{{"ph":"f","bp":"e",{common},"pid":{after.pid},"tid":{after.tid},"ts":{begin}}}'


def _place(columns: str) -> str:
    """SQL of a struct of the process and the thread, from that of its two columns."""
    pid, tid = columns.removesuffix(" AS tid").split(" AS pid, ")
    return f"{{'pid': {pid}, 'tid': {tid}}}"


def _counters(scope: _Scope) -> Iterator[str]:
    for counter in counter_tracks(scope.gpu(), scope.cpu().split(" AS ")[0]):
        for (pid, series), rows in groupby(scope.rows(counter.sql), key=lambda row: (row[0], row[1])):
            name = _text(f"{counter.name} {series}".strip())
            for at, value in changes(((at, value) for _, _, at, value in rows), scope.from_ns, scope.to_ns):
                yield (
                    f'{{"ph":"C","name":{name},"pid":{pid},"tid":0,"ts":{_us(at - scope.base_ns)},'
                    f'"args":{{"{counter.name}":{value}}}}}'
                )


def _names(scope: _Scope) -> Iterator[str]:
    """What the processes and threads are called, CPU before GPUs, rank by rank."""
    cpu = (
        f"SELECT DISTINCT rank, {scope.cpu()} FROM (SELECT rank, pid, tid FROM cpu_ops UNION SELECT rank, pid, tid FROM"
        " cuda_calls UNION SELECT rank, pid, tid FROM ranges WHERE origin <> 'gpu_annotation') ORDER BY ALL"
    )
    gpu = f"SELECT DISTINCT rank, device, {scope.gpu()} AS pid, coalesce(stream, 0) AS tid FROM gpu_work ORDER BY ALL"
    seen: set[int] = set()
    order = 0
    for rank, pid, tid in scope.rows(cpu):
        if pid not in seen:
            seen.add(pid)
            yield from _process(pid, f"rank {rank} CPU", order := order + 1)
        yield _metadata("thread_name", pid, tid, f'"name":{_text(f"rank {rank} CPU thread {tid}")}')
    for rank, device, pid, tid in scope.rows(gpu):
        if pid not in seen:
            seen.add(pid)
            yield from _process(pid, f"rank {rank} GPU {device if device is not None else '?'}", order := order + 1)
        yield _metadata("thread_name", pid, tid, f'"name":{_text(f"rank {rank} GPU {device} stream {tid}")}')


def _process(pid: int, name: str, order: int) -> Iterator[str]:
    yield _metadata("process_name", pid, 0, f'"name":{_text(name)}')
    yield _metadata("process_sort_index", pid, 0, f'"sort_index":{order}')


def _metadata(name: str, pid: int, tid: int, args: str) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"ts":0,"args":{{{args}}}}}'
