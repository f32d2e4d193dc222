"""Where events stand in an exported trace: numbers and names of processes and threads, and lanes for what overlaps.

The Perfetto UI reads numbers of 32 bits without sign, takes thread 0 of a process for the thread with the number of the
process, and draws a thread's slices inside one another: of two that overlap only in part, the later one is an import
error. So every place gets a number of its own, threads one above 0, and such a slice an overflow lane, a thread beside
its own.

The UI shows the number behind each name, so it is the one that the name asks for: that of the process behind
`rank 0 CPU process`, the index of a GPU behind `rank 0 GPU`, a thread's and a stream's own. What has none, or one that
is taken (GPU 1 by process 1 of a container), gets the first that is free and a name to go before it: `rank 0 GPU 1
track`, `allocator track`, `stream 7 overlap`.

In SQL, and until an event is drawn, places have keys instead: numbers that no two places share, however large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_PROCESSES = 8_000_000
"""Keys of a rank's processes are below. The largest number of a process or thread of Linux is 2^22."""

_GPUS = 9_000_000
"""What a device's index is added to for its key."""

_RANK = 10_000_000
"""The keys of rank r are from r times this on."""

_NO_THREAD, _OVERHEAD, _SYNC, ALLOCATOR, _STREAM_0, _NO_STREAM = range(-6, 0)
_RESERVED = {
    _NO_THREAD: "unknown thread",
    _OVERHEAD: "profiler overhead",
    _SYNC: "synchronisation",
    ALLOCATOR: "allocator",
    _STREAM_0: "stream 0",
    _NO_STREAM: "unknown stream",
}
"""Keys of threads that have no number, or 0."""

_TABLES = ("cpu_ops", "ranges", "cuda_calls", "kernels", "memcpys", "memsets")


class _Numbers:
    """Numbers of 32 bits for keys: the one that is asked for where it is free, else the first free one above 0."""

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
    """A process to name, with its threads in order: number and name."""

    pid: int
    name: str
    threads: list[tuple[int, str]]


class Places:
    """The places of a run's events; remembers which were used."""

    def __init__(self, engine: Engine):
        rows = engine.execute(
            "SELECT rank, min(pid) FILTER (pid > 0) FROM run_groups LEFT JOIN (SELECT run_id, rank, pid FROM cpu_ops"
            " UNION ALL SELECT run_id, rank, pid FROM cuda_calls UNION ALL SELECT run_id, rank, pid FROM ranges WHERE"
            " origin <> 'gpu_annotation') USING (run_id, rank) GROUP BY rank ORDER BY rank"
        ).fetchall()
        cases = "".join(f" WHEN {rank} THEN {pid}" for rank, pid in rows if pid is not None)
        # 0 where no row of a rank says.
        self._main = f"CASE rank{cases} ELSE 0 END" if cases else "0"
        self._lanes: dict[tuple[int, int, int, int], int] = {}
        self._processes = _Numbers()
        self._threads: dict[int, _Numbers] = defaultdict(_Numbers)
        self._drawn: dict[int, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
        """By the key of a process, then of a thread and a lane: the numbers of what was drawn there."""
        self._named: list[Process] = []

    def process(self) -> str:
        """SQL of the key of a process on the CPU: for rows that do not say, and those of -1, the rank's first."""
        return f"(rank * {_RANK}::BIGINT + CASE WHEN pid > 0 THEN pid % {_PROCESSES} ELSE {self._main} END)"

    def gpu(self) -> str:
        """SQL of the key of a GPU."""
        return f"(rank * {_RANK}::BIGINT + {_GPUS} + coalesce(device, 0))"

    def of(self, table: str) -> tuple[str, str]:
        """SQL of the keys of the process and the thread of a row of a table, or of gpu_work."""

        def number(column: str, otherwise: str) -> str:
            # torch writes the lower half of some threads' 64-bit ids, as a number that may be negative.
            return f"CASE WHEN {column} & 4294967295 > 0 THEN {column} & 4294967295 ELSE {otherwise} END"

        stream = number("stream", f"CASE WHEN stream IS NULL THEN {_NO_STREAM} ELSE {_STREAM_0} END")
        if table == "cpu_ops":
            return self.process(), number("tid", str(_NO_THREAD))
        if table == "cuda_calls":
            # CUPTI does not say which thread synchronised; torch puts the device and the stream there.
            pid = f"CASE WHEN api = 'sync' THEN rank * {_RANK}::BIGINT + {self._main} ELSE {self.process()} END"
            return pid, f"CASE WHEN api = 'sync' THEN {_SYNC} ELSE {number('tid', str(_NO_THREAD))} END"
        if table == "ranges":
            thread = number("tid", f"CASE WHEN origin = 'overhead' THEN {_OVERHEAD} ELSE {_NO_THREAD} END")
            on_gpu = "CASE WHEN origin = 'gpu_annotation' THEN"
            return f"{on_gpu} {self.gpu()} ELSE {self.process()} END", f"{on_gpu} {stream} ELSE {thread} END"
        return self.gpu(), stream

    def columns(self, table: str) -> str:
        """SQL of the keys of a table's rows, as pid and tid; `draw` makes of them where an event is drawn."""
        pid, tid = self.of(table)
        return f"{pid} AS pid, {tid} AS tid"

    def lay_out(self, engine: Engine, inside: str) -> None:
        """Number the places of the events for which the SQL `inside` holds, and find those that need an overflow lane.

        A place that has a number keeps it, whatever is drawn first.
        """
        drawn = " UNION ALL ".join(
            f"SELECT {self.columns(t)}, start_ns, coalesce(dur_ns, 0) AS dur_ns FROM {t} WHERE {inside}"
            for t in _TABLES
        )
        places = engine.execute(f"SELECT DISTINCT pid, tid FROM ({drawn}) ORDER BY pid, tid").fetchall()
        # The CPU's processes first: their rows read back by the number.
        for pid, tid in sorted(places, key=lambda place: place[0] % _RANK >= _GPUS):
            self._processes.claim(pid, _own_number(pid))
            self._threads[pid].claim((tid, 0), None if tid in _RESERVED else tid)
        result = engine.execute(f"{drawn} ORDER BY pid, tid, start_ns, dur_ns DESC")
        rows = (row for batch in iter(lambda: result.fetchmany(10_000), []) for row in batch)
        self._lanes = overflow_lanes(rows)

    def draw(self, pid: int, tid: int, start_ns: int, dur_ns: int | None) -> tuple[int, int]:
        """The numbers of the process and the thread in which an event is drawn; they get names thereby."""
        place = (tid, self._lanes.get((pid, tid, start_ns, dur_ns or 0), 0))
        numbers = self._drawn[pid].get(place)
        if numbers is None:
            numbers = self._drawn[pid][place] = self._processes.of(pid), self._threads[pid].of(place)
        return numbers

    def use(self, pid: int) -> int:
        """The number of a process that may have nothing but counters; it gets a name thereby."""
        self._drawn.setdefault(pid, {})
        self._processes.claim(pid, _own_number(pid))
        return self._processes.of(pid)

    def add(self, name: str, threads: Iterable[str]) -> Process:
        """A process that is none of the run's, before all others."""
        process = Process(self._processes.of(name), f"{name} track", list(enumerate(threads, 1)))
        self._named.append(process)
        return process

    def processes(self) -> Iterator[Process]:
        """The processes that were used, rank by rank, the CPU before the GPUs, under names that want their number."""
        yield from self._named
        for pid in sorted(self._drawn):
            number, own = self._processes.of(pid), _own_number(pid)
            rank, key = divmod(pid, _RANK)
            on_gpu = key >= _GPUS
            name = _wanting(f"rank {rank} {'GPU' if on_gpu else 'CPU process'}", own, number)
            kind = "stream" if on_gpu else "thread"
            threads = []
            for (tid, lane), (_, shown) in sorted(self._drawn[pid].items()):
                plain = _RESERVED.get(tid)
                if lane:
                    threads.append((shown, f"{plain or f'{kind} {tid}'} overlap"))
                else:
                    threads.append((shown, f"{plain} track" if plain else _wanting(kind, tid, shown)))
            yield Process(number, name, threads)


def _own_number(pid: int) -> int | None:
    """The number of the process or device of a key; None if it is not known."""
    key = pid % _RANK
    return key - _GPUS if key >= _GPUS else key or None


def _wanting(name: str, own: int | None, number: int) -> str:
    """A name that reads well with a number behind it, which is the place's own or not."""
    if own == number:
        return name
    return f"{name.removesuffix(' process')} track" if own is None else f"{name} {own} track"


def overflow_lanes(rows: Iterable[tuple[int, int, int, int]]) -> dict[tuple[int, int, int, int], int]:
    """The lane (from 1) of each event that overlaps in part with another of its thread.

    `rows`: process, thread, start and length in ns, in this order, the longer first. An event goes to the first lane
    where it lies inside the events that are open then, or none is.
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
