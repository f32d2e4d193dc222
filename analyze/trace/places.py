"""Where events stand in an exported trace: numbers and names of processes and threads, and lanes for what overlaps.

The Perfetto UI reads numbers of 32 bits without sign, takes thread 0 of a process for the thread with the number of the
process, and draws a thread's slices inside one another: of two that overlap only in part, the later one is an import
error. So every place gets a number of its own above 0, and such a slice an overflow lane, a thread beside its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from analyze.errors import InputError

if TYPE_CHECKING:
    from analyze.query.engine import Engine

CRITICAL_PATH = 8_000_000
"""The process of the critical path. Numbers from here on are above those of any process or thread of Linux (2^22)."""

GPUS = 9_000_000
"""What is added to a device's number: a GPU is a process in a Chrome trace, and a process may have the same number."""

RANK_STRIDE = 10_000_000
"""Where several ranks are written, the processes of rank r get numbers from r times this: their own may be the same."""

LAST_RANK = 2**32 // RANK_STRIDE - 1
"""The last one whose processes have numbers of 32 bits."""

LANE_STRIDE = 10_000_000
"""How far apart the thread numbers of a place's overflow lanes are."""

_NO_THREAD, _OVERHEAD, _SYNC, ALLOCATOR, _STREAM_0, _NO_STREAM = range(8_000_001, 8_000_007)
_RESERVED = {
    _NO_THREAD: "unknown thread",
    _OVERHEAD: "profiler overhead",
    _SYNC: "synchronisation",
    ALLOCATOR: "allocator",
    _STREAM_0: "stream 0",
    _NO_STREAM: "unknown stream",
}
"""Thread numbers of what has none, or 0."""

_TABLES = ("cpu_ops", "ranges", "cuda_calls", "kernels", "memcpys", "memsets")


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
        self._ranks = [rank for rank, _ in rows]
        self._stride = RANK_STRIDE if len(rows) > 1 else 0
        if self._stride and not 0 <= max(self._ranks) <= LAST_RANK:
            raise InputError(
                f"trace: of several ranks, those up to {LAST_RANK} have room in a Chrome trace, and rank"
                f' {max(self._ranks)} is among them; choose with --where "rank <= {LAST_RANK}", or one by itself'
            )
        cases = "".join(f" WHEN {rank} THEN {pid}" for rank, pid in rows if pid is not None)
        self._main = f"CASE rank{cases} ELSE 1 END" if cases else "1"
        self._lanes: dict[tuple[int, int, int, int], int] = {}
        self._overflow: dict[tuple[int, int], int] = {}
        self._used: dict[int, set[int]] = {}
        self._named: list[Process] = []

    def process(self) -> str:
        """SQL of the number of a process on the CPU: for rows that do not say, and those of -1, the rank's first."""
        return f"(rank * {self._stride}::BIGINT + CASE WHEN pid > 0 THEN pid % {CRITICAL_PATH} ELSE {self._main} END)"

    def gpu(self) -> str:
        """SQL of the number of a GPU."""
        return f"(rank * {self._stride}::BIGINT + {GPUS} + coalesce(device, 0))"

    def of(self, table: str) -> tuple[str, str]:
        """SQL of the process and the thread of a row of a table, or of gpu_work."""

        def number(column: str, otherwise: str) -> str:
            # torch writes the lower half of some threads' 64-bit ids, as a number that may be negative.
            return f"CASE WHEN {column} & 4294967295 > 0 THEN {column} & 4294967295 ELSE {otherwise} END"

        stream = number("stream", f"CASE WHEN stream IS NULL THEN {_NO_STREAM} ELSE {_STREAM_0} END")
        if table == "cpu_ops":
            return self.process(), number("tid", str(_NO_THREAD))
        if table == "cuda_calls":
            # CUPTI does not say which thread synchronised; torch puts the device and the stream there.
            pid = f"CASE WHEN api = 'sync' THEN rank * {self._stride}::BIGINT + {self._main} ELSE {self.process()} END"
            return pid, f"CASE WHEN api = 'sync' THEN {_SYNC} ELSE {number('tid', str(_NO_THREAD))} END"
        if table == "ranges":
            thread = number("tid", f"CASE WHEN origin = 'overhead' THEN {_OVERHEAD} ELSE {_NO_THREAD} END")
            on_gpu = "CASE WHEN origin = 'gpu_annotation' THEN"
            return f"{on_gpu} {self.gpu()} ELSE {self.process()} END", f"{on_gpu} {stream} ELSE {thread} END"
        return self.gpu(), stream

    def columns(self, table: str) -> str:
        """SQL of the columns pid and tid of a table's rows; `draw` makes of them where an event is drawn."""
        pid, tid = self.of(table)
        return f"{pid} AS pid, {tid} AS tid"

    def lay_out(self, engine: Engine, inside: str) -> None:
        """Find the events that need an overflow lane, of those for which the SQL `inside` holds."""
        drawn = " UNION ALL ".join(
            f"SELECT {self.columns(t)}, start_ns, coalesce(dur_ns, 0) AS dur_ns FROM {t} WHERE {inside}"
            for t in _TABLES
        )
        result = engine.execute(f"{drawn} ORDER BY pid, tid, start_ns, dur_ns DESC")
        rows = (row for batch in iter(lambda: result.fetchmany(10_000), []) for row in batch)
        self._lanes = overflow_lanes(rows)

    def draw(self, pid: int, tid: int, start_ns: int, dur_ns: int | None) -> tuple[int, int]:
        """The process and the thread in which an event is drawn; they get names thereby."""
        lane = self._lanes.get((pid, tid, start_ns, dur_ns or 0), 0)
        if lane:
            beside = (tid + lane * LANE_STRIDE) % 2**32 or LANE_STRIDE
            self._overflow[pid, beside] = tid
            tid = beside
        self._used.setdefault(pid, set()).add(tid)
        return pid, tid

    def use(self, pid: int) -> None:
        """Have a process named that may have nothing but counters."""
        self._used.setdefault(pid, set())

    def add(self, process: Process) -> None:
        """Have a process that is none of the run's, before all others."""
        self._named.append(process)

    def processes(self) -> Iterator[Process]:
        """The processes that were used, rank by rank, the CPU before the GPUs.

        The Perfetto UI shows the number behind a name, so names do not repeat it (chrome://tracing leaves it to the
        details of a slice).
        """
        yield from self._named
        for pid in sorted(self._used):
            rank, number = divmod(pid, self._stride) if self._stride else (self._ranks[0], pid)
            on_gpu = number >= GPUS
            name = f"rank {rank} GPU {number - GPUS}" if on_gpu else f"rank {rank} CPU"
            kind = "stream" if on_gpu else "thread"
            threads = []
            for base, tid in sorted((self._overflow.get((pid, tid), tid), tid) for tid in self._used[pid]):
                plain = _RESERVED.get(base)
                threads.append((tid, (plain or kind) if base == tid else f"{plain or f'{kind} {base}'} overlap"))
            yield Process(pid, name, threads)


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
