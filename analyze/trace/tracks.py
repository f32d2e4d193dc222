"""Processes and threads of an exported trace: their numbers and names, and overflow threads for slices that overlap.

The Perfetto UI needs numbers that fit:

- Process and thread numbers have 32 bits, without sign. Thread 0 of a process becomes the thread with the number of the
  process, so threads are numbered from 1.
- Slices of a thread must nest. A slice that overlaps another in part would be an import error: it goes to an overflow
  thread.
- The UI shows the number after each name. So a process, GPU, thread or stream keeps its own number if that is free
  (`rank 0 GPU` with number 0). Otherwise it gets a free number, and its name says so: `rank 0 GPU 1 track`,
  `stream 7 overlap`.

SQL identifies a process and a thread by keys, which are unique. Keys become numbers when an event is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_RANK = 10_000_000
"""Process keys of rank r start at r times this."""

_PROCESSES = 8_000_000
"""Upper bound of a CPU process within its rank. Linux has process ids up to 2^22."""

_GPUS = 9_000_000
"""Key of GPU 0 within its rank."""

_NO_THREAD, _OVERHEAD, _SYNC, ALLOCATOR, _STREAM_0, _NO_STREAM = range(-6, 0)
_RESERVED = {
    _NO_THREAD: "unknown thread",
    _OVERHEAD: "profiler overhead",
    _SYNC: "synchronisation",
    ALLOCATOR: "allocator",
    _STREAM_0: "stream 0",
    _NO_STREAM: "unknown stream",
}
"""Keys of threads without a number, or with number 0."""

_TABLES = ("cpu_ops", "ranges", "cuda_calls", "os_calls", "kernels", "memcpys", "memsets")


class _Numbers:
    """Assigns each key a 32-bit number: the wanted one if it is free, else the first free one above 0."""

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        self._taken: set[int] = set()
        self._free = count(1)

    def claim(self, key: Hashable, wanted: int | None) -> None:
        if key not in self._of and wanted is not None and 0 <= wanted < 2**32 and wanted not in self._taken:
            self._of[key] = wanted
            self._taken.add(wanted)

    def of(self, key: Hashable) -> int:
        if key not in self._of:
            self.claim(key, next(n for n in self._free if n not in self._taken))
        return self._of[key]


class Process(NamedTuple):
    """A process of the trace, with the number and name of each thread, in order."""

    pid: int
    name: str
    threads: list[tuple[int, str]]


class Tracks:
    """Processes and threads of a run's events. Remembers which have events."""

    def __init__(self, engine: Engine):
        rows = engine.execute(
            "SELECT rank, min(pid) FILTER (pid > 0) FROM run_groups LEFT JOIN (SELECT run_id, rank, pid FROM cpu_ops"
            " UNION ALL SELECT run_id, rank, pid FROM cuda_calls UNION ALL SELECT run_id, rank, pid FROM ranges WHERE"
            " origin <> 'gpu_annotation') USING (run_id, rank) GROUP BY rank ORDER BY rank"
        ).fetchall()
        cases = "".join(f" WHEN {rank} THEN {pid}" for rank, pid in rows if pid is not None)
        # 0 if no row of a rank has a process id.
        self._main = f"CASE rank{cases} ELSE 0 END" if cases else "0"
        self._lanes: dict[tuple[int, int, int, int], int] = {}
        self._processes = _Numbers()
        self._threads: dict[int, _Numbers] = defaultdict(_Numbers)
        self._drawn: dict[int, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
        """Numbers of processes and threads with events, by process key, then thread key and lane."""
        self._added: list[Process] = []

    def process(self) -> str:
        """Return SQL of the key of a CPU process; rows without a process id get the first process of the rank."""
        return f"(rank * {_RANK}::BIGINT + CASE WHEN pid > 0 THEN pid % {_PROCESSES} ELSE {self._main} END)"

    def gpu(self) -> str:
        """Return SQL of the key of a GPU."""
        return f"(rank * {_RANK}::BIGINT + {_GPUS} + coalesce(device, 0))"

    def of(self, table: str) -> tuple[str, str]:
        """Return SQL of the process key and the thread key of a row of a table or of gpu_work."""

        def number(column: str, otherwise: str) -> str:
            # torch writes the lower 32 bits of some thread ids as a signed number.
            return f"CASE WHEN {column} & 4294967295 > 0 THEN {column} & 4294967295 ELSE {otherwise} END"

        stream = number("stream", f"CASE WHEN stream IS NULL THEN {_NO_STREAM} ELSE {_STREAM_0} END")
        if table in ("cpu_ops", "os_calls"):
            return self.process(), number("tid", str(_NO_THREAD))
        if table == "cuda_calls":
            # CUPTI does not record the thread of a synchronisation; torch writes device and stream instead.
            pid = f"CASE WHEN api = 'sync' THEN rank * {_RANK}::BIGINT + {self._main} ELSE {self.process()} END"
            return pid, f"CASE WHEN api = 'sync' THEN {_SYNC} ELSE {number('tid', str(_NO_THREAD))} END"
        if table == "ranges":
            thread = number("tid", f"CASE WHEN origin = 'overhead' THEN {_OVERHEAD} ELSE {_NO_THREAD} END")
            on_gpu = "CASE WHEN origin = 'gpu_annotation' THEN"
            return f"{on_gpu} {self.gpu()} ELSE {self.process()} END", f"{on_gpu} {stream} ELSE {thread} END"
        return self.gpu(), stream

    def columns(self, table: str) -> str:
        """Return SQL of the keys of a table's rows, as pid and tid, for `draw`."""
        pid, tid = self.of(table)
        return f"{pid} AS pid, {tid} AS tid"

    def lay_out(self, engine: Engine, condition: str) -> None:
        """Number the processes and threads of the events that match a condition, and find overflow lanes.

        Done before events are written, so that no other process takes a number that one has of its own.
        """
        drawn = " UNION ALL ".join(
            f"SELECT {self.columns(t)}, start_ns, coalesce(dur_ns, 0) AS dur_ns FROM {t} WHERE {condition}"
            for t in _TABLES
        )
        threads = engine.execute(f"SELECT DISTINCT pid, tid FROM ({drawn}) ORDER BY pid, tid").fetchall()
        # CPU processes first: reading the trace again gives the same pid.
        for pid, tid in sorted(threads, key=lambda thread: thread[0] % _RANK >= _GPUS):
            self._processes.claim(pid, _own_number(pid))
            self._threads[pid].claim((tid, 0), None if tid in _RESERVED else tid)
        result = engine.execute(f"{drawn} ORDER BY pid, tid, start_ns, dur_ns DESC")
        rows = (row for batch in iter(lambda: result.fetchmany(10_000), []) for row in batch)
        self._lanes = overflow_lanes(rows)

    def draw(self, pid: int, tid: int, start_ns: int, dur_ns: int | None) -> tuple[int, int]:
        """Return the process and thread numbers of an event, and mark both as used."""
        thread = (tid, self._lanes.get((pid, tid, start_ns, dur_ns or 0), 0))
        numbers = self._drawn[pid].get(thread)
        if numbers is None:
            numbers = self._drawn[pid][thread] = self._processes.of(pid), self._threads[pid].of(thread)
        return numbers

    def use(self, pid: int) -> int:
        """Return the number of a process that may have only counters, and mark it as used."""
        self._drawn.setdefault(pid, {})
        self._processes.claim(pid, _own_number(pid))
        return self._processes.of(pid)

    def add(self, name: str, threads: Iterable[str]) -> Process:
        """Add a process that is not one of the run; it is shown first."""
        process = Process(self._processes.of(name), f"{name} track", list(enumerate(threads, 1)))
        self._added.append(process)
        return process

    def processes(self) -> Iterator[Process]:
        """Yield the used processes with their names: added ones, then by rank, the CPU before the GPUs."""
        yield from self._added
        for pid in sorted(self._drawn):
            number, own = self._processes.of(pid), _own_number(pid)
            rank, key = divmod(pid, _RANK)
            on_gpu = key >= _GPUS
            name = _name(f"rank {rank} {'GPU' if on_gpu else 'CPU process'}", own, number)
            kind = "stream" if on_gpu else "thread"
            threads = []
            for (tid, lane), (_, shown) in sorted(self._drawn[pid].items()):
                plain = _RESERVED.get(tid)
                if lane:
                    threads.append((shown, f"{plain or f'{kind} {tid}'} overlap"))
                else:
                    threads.append((shown, f"{plain} track" if plain else _name(kind, tid, shown)))
            yield Process(number, name, threads)


def _own_number(pid: int) -> int | None:
    """Return the process id or device index of a key; None if unknown."""
    key = pid % _RANK
    return key - _GPUS if key >= _GPUS else key or None


def _name(name: str, own: int | None, number: int) -> str:
    """Return a name to be followed by `number`, with the own number in it if that is another one."""
    if own == number:
        return name
    return f"{name.removesuffix(' process')} track" if own is None else f"{name} {own} track"


def overflow_lanes(rows: Iterable[tuple[int, int, int, int]]) -> dict[tuple[int, int, int, int], int]:
    """Return the lane (from 1) of each event that overlaps another of its thread in part.

    `rows`: process, thread, start and duration in ns, in this order, longer first. An event goes to the first lane in
    which it is nested in all open events.
    """
    lanes: dict[tuple[int, int, int, int], int] = {}
    for _, events in groupby(rows, key=lambda row: row[:2]):
        open_ends: list[list[int]] = [[]]
        for event in events:
            start, end = event[2], event[2] + event[3]
            lane = 0
            while not _fits(open_ends[lane], start, end):
                lane += 1
                if lane == len(open_ends):
                    open_ends.append([])
            open_ends[lane].append(end)
            if lane:
                lanes[event] = lane
    return lanes


def _fits(ends: list[int], start: int, end: int) -> bool:
    while ends and ends[-1] <= start:
        ends.pop()
    return not ends or end <= ends[-1]
