"""The timeline of a run: its lanes, its span, its steps, and where an event is.

Times are in ns since the first event of the run (`run_zeros`), on all ranks.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.plots.figure import cut
from analyze.query.literals import of_run, text_literal

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_FIRST_GAPS = 5
"""Longest gaps that the page lists."""
STATES = ("idle", "compute", "communication", "copies")
"""What a GPU does at a time."""

_EVENTS = """
SELECT 'work' AS source, rank, device::BIGINT AS a, stream AS b, 0 AS depth, start_ns, dur_ns, start_ns AS key
FROM gpu_work WHERE {run}
UNION ALL
SELECT
    'cpu', rank, pid, tid, CASE WHEN kind = 'async' THEN -1 ELSE depth END, start_ns, dur_ns, node
FROM call_tree WHERE {run}
UNION ALL
SELECT
    'state', rank, device, CASE
        WHEN compute_kernels > 0 THEN 1 WHEN comm_kernels > 0 THEN 2 WHEN memcpys + memsets > 0 THEN 3 ELSE 0
    END, 0, start_ns, dur_ns, start_ns
FROM gpu_segments WHERE {run} AND dur_ns > 0
"""
"""What is drawn. `a` and `b`: device and stream, process and thread, or device and the place in STATES."""

_FIND = """
WITH found AS (
    SELECT 'work' AS source, rank, device::BIGINT AS a, stream AS b, 0 AS depth, start_ns, dur_ns, name
    FROM gpu_work
    WHERE {run} AND (
        contains(lower(name), lower({text}))
        OR kind = 'kernel' AND name IN (SELECT name FROM kernel_names WHERE {run} AND family = lower({text}))
    )
    UNION ALL
    SELECT 'cpu', rank, pid, tid, CASE WHEN kind = 'async' THEN -1 ELSE depth END, start_ns, dur_ns, name
    FROM call_tree WHERE {run} AND contains(lower(name), lower({text}))
),
ordered AS (
    SELECT *, row_number() OVER (ORDER BY start_ns, dur_ns DESC, source DESC, rank, a, b, depth) AS place FROM found
)
SELECT *, (SELECT count(*) FROM found) AS hits FROM ordered WHERE place = {place}
"""


class Moment(NamedTuple):
    """A stretch of time in a lane, in ns since the first event."""

    lane: int
    start: int
    dur: int


class Lane(NamedTuple):
    """A lane of the timeline: what a GPU does, a stream, the samples of a GPU, a thread, or its asynchronous ranges."""

    rank: int
    kind: str
    label: str
    rows: int = 1


LaneKey = tuple[str, int, int | None, int | None]
"""Source of the events of a lane, rank, and device and stream or process and thread."""


class Timeline:
    """The timeline of the run of an engine."""

    def __init__(self, engine: Engine, run_id: str):
        self.engine = engine
        self.run_id = run_id
        self._run = of_run(run_id)
        self.events = _EVENTS.format(run=self._run)
        """SQL of the events that are drawn."""

    def rows(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        """Return the rows of SQL, in which `{run}` selects the run."""
        return self.engine.rows(sql.format(run=self._run, **values))

    @cached_property
    def zero(self) -> int:
        """The time of the first event, on the clock of the recording."""
        [(zero,)] = self.engine.rows(f"SELECT min(zero_ns) FROM run_zeros WHERE {self._run}", ["run_zeros"])
        return zero or 0

    @cached_property
    def _lanes(self) -> dict[LaneKey, Lane]:
        """The lanes, from the top down."""
        streams = self.rows("SELECT rank, device, stream FROM gpu_work WHERE {run} GROUP BY ALL")
        samples = set(self.rows("SELECT DISTINCT rank, device FROM gpu_samples WHERE {run}"))
        threads = self.rows(
            "SELECT rank, pid, tid, max(depth) FILTER (kind <> 'async'), count(*), count(*) FILTER (kind = 'async'),"
            " bool_and(kind = 'overhead')"
            " FROM call_tree WHERE {run} GROUP BY ALL"
        )
        found: list[tuple[tuple[Any, ...], LaneKey, Lane]] = []
        for rank, device in {(rank, device) for rank, device, _ in streams}:
            gpu = "GPU" if device is None else f"GPU {device}"
            found.append(((rank, 0, device or 0, 0), ("state", rank, device, None), Lane(rank, "gpu", gpu)))
            if (rank, device) in samples:
                lane = Lane(rank, "samples", f"{gpu} samples")
                found.append(((rank, 0, device or 0, 2), ("samples", rank, device, None), lane))
        for rank, device, stream in streams:
            label = "stream" if stream is None else f"stream {stream}"
            lane = Lane(rank, "stream", label)
            found.append(((rank, 0, device or 0, 1, stream or 0), ("work", rank, device, stream), lane))
        for rank, pid, tid, depth, events, alone, overhead in threads:
            main = pid is not None and pid == tid
            label = f"thread {tid} (main)" if main else "thread" if tid is None else f"thread {tid}"
            label = "profiler" if overhead else label
            order = (rank, 1, not main, -events, tid or 0)
            if depth is not None:
                found.append(((*order, 0), ("cpu", rank, pid, tid), Lane(rank, "thread", label, depth + 1)))
            if alone:
                lane = Lane(rank, "async", f"{label}, asynchronous")
                found.append(((*order, 1), ("async", rank, pid, tid), lane))
        found.sort(key=lambda lane: lane[0])
        return {key: lane for _, key, lane in found}

    @property
    def lanes(self) -> list[Lane]:
        """Return the lanes, as they are numbered."""
        return list(self._lanes.values())

    @cached_property
    def numbers(self) -> dict[LaneKey, int]:
        """The number of each lane."""
        return {key: number for number, key in enumerate(self._lanes)}

    @cached_property
    def span(self) -> tuple[int, int]:
        """Start and end of what is drawn."""
        [(first, last)] = self.engine.rows(
            f"SELECT min(start_ns), max(start_ns + dur_ns) FROM ({self.events}) WHERE source <> 'state'"
        )
        return (0, 0) if first is None else (first - self.zero, max(last, first + 1) - self.zero)

    @cached_property
    def gaps(self) -> list[tuple[int, int, int]]:
        """Lane, start and length of the longest gaps."""
        rows = self.rows(
            "SELECT rank, device, start_ns, dur_ns FROM gpu_segments WHERE {run} AND dur_ns > 0"
            " AND compute_kernels + comm_kernels + memcpys + memsets = 0"
            f" ORDER BY dur_ns DESC, start_ns, rank, device LIMIT {_FIRST_GAPS}"
        )
        return [
            (self.numbers[lane], start - self.zero, dur)
            for rank, device, start, dur in rows
            if (lane := ("state", rank, device, None)) in self.numbers
        ]

    def __bool__(self) -> bool:
        """Return whether there is anything to draw."""
        return bool(self._lanes)

    def count(self, from_ns: int, to_ns: int) -> int:
        """Return the number of events that overlap a window."""
        from_ns, to_ns = from_ns + self.zero, to_ns + self.zero
        [(count,)] = self.engine.rows(
            f"SELECT count(*) FROM ({self.events})"
            f" WHERE start_ns < {to_ns} AND start_ns + greatest(dur_ns, 1) > {from_ns}"
        )
        return int(count)

    def find(self, text: str, place: int) -> dict[str, Any]:
        """Return an event whose name has a text or whose kernel family it is, and how many there are.

        `place`: in the order of their starts, from 1.
        """
        rows = self.rows(_FIND, text=text_literal(text), place=place)
        if not rows:
            return {"hits": 0}
        [(source, rank, a, b, depth, start, dur, name, _, hits)] = rows
        return {
            "hits": hits, "lane": self.numbers["async" if depth < 0 else source, rank, a, b], "depth": max(depth, 0),
            "start": start - self.zero, "dur": dur, "name": cut(name),
        }  # fmt: skip

    def moment(self, rank: int, device: int | None, start_ns: int | None, end_ns: int | None) -> Moment | None:
        """Return where a stretch of time of a GPU is drawn, or without GPU work of the first thread of a rank.

        Times are on the clock of the recording.
        """
        lane = self.numbers.get(("state", rank, device, None))
        if lane is None and device is None:
            lane = next((n for (source, of, *_), n in self.numbers.items() if source == "cpu" and of == rank), None)
        if lane is None or start_ns is None or end_ns is None:
            return None
        return Moment(lane, start_ns - self.zero, end_ns - start_ns)

    @cached_property
    def _step_times(self) -> list[tuple[int, int]]:
        """Start and end of each step, on all ranks."""
        rows = self.rows(
            "SELECT min(start_ns), max(start_ns + dur_ns) FROM recorded_steps WHERE {run} GROUP BY turn ORDER BY turn"
        )
        return [(start - self.zero, end - self.zero) for start, end in rows]

    @property
    def first_step(self) -> int:
        """Return the start of the first step; without steps, of the first event."""
        return self._step_times[0][0] if self._step_times else self.span[0]

    def step_at(self, moment: int | None) -> int:
        """Return the place of the step that holds a moment, or of the one in the middle."""
        steps = self._step_times
        inside = (i for i, (start, end) in enumerate(steps) if moment is not None and start <= moment < end)
        return next(inside, len(steps) // 2)

    def steps_window(self, at: int, number: int) -> tuple[int, int] | None:
        """Return the window of a number of steps up to a place, to the end of the GPU work that they launch."""
        last = min(at, len(self._step_times) - 1)
        chosen = self._step_times[max(0, last + 1 - number) :][:number]
        if not chosen:
            return None
        start, end = chosen[0][0], chosen[-1][1]
        [(launched,)] = self.rows(
            "SELECT max(start_ns + dur_ns) FROM gpu_work WHERE {run}"
            f" AND call_start_ns >= {start + self.zero} AND call_start_ns < {end + self.zero}"
        )
        return start, max(end, launched - self.zero if launched else end)
