"""The timeline of a run: the events of a window as rectangles, never more than a page can draw.

Times are in ns since the first event of the run (`run_zeros`), on all ranks. Events that begin in the same cell of time
in the same row become one rectangle, with the name of the longest; in a window with few events each has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.errors import InputError
from analyze.plots.figure import cut
from analyze.plots.theme import FAMILIES, MEANINGS
from analyze.query.literals import of_run, text_literal

if TYPE_CHECKING:
    from analyze.query.engine import Engine

MOST = 20_000
"""Most rectangles of a window: about 400 KB."""
_WIDTHS = (100, 4_000)
"""Least and most cells of a window."""
_LONGEST_NAME = 2_000
"""Longest name, in characters, that leads to its row."""
_FIRST_GAPS = 5
"""Longest gaps that the page lists."""

COLORS = FAMILIES | {
    name: MEANINGS[name]
    for name in ("op", "range", "python", "module", "memcpy", "memset", "idle", "waiting", "compute", "copies")
} | {"call": "#c9761a", "overhead": MEANINGS["profiler"], "async": MEANINGS["communication"]}  # fmt: skip
"""Colours by kernel family and kind of event."""

_STATES = ("idle", "compute", "communication", "copies")
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
"""What is drawn. `a` and `b`: device and stream, process and thread, or device and the place in _STATES."""

_CELLS = """
CREATE OR REPLACE TEMP TABLE timeline_cells AS
SELECT
    source, rank, a, b, depth, greatest(start_ns - {from_ns}, -{cell_ns}) // {cell_ns} AS cell,
    min(start_ns) AS start_ns, max(start_ns + dur_ns) AS end_ns, count(*) AS n, sum(dur_ns)::BIGINT AS sum_ns,
    arg_max(key, dur_ns) AS key, max(dur_ns) AS longest_ns
FROM ({events})
WHERE start_ns < {to_ns} AND start_ns + greatest(dur_ns, 1) > {from_ns}
GROUP BY source, rank, a, b, depth, cell
"""
_FEWER_CELLS = """
CREATE OR REPLACE TEMP TABLE timeline_cells AS
SELECT
    source, rank, a, b, depth, cell // 2 AS cell, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
    sum(n)::BIGINT AS n, sum(sum_ns)::BIGINT AS sum_ns, arg_max(key, longest_ns) AS key,
    max(longest_ns) AS longest_ns
FROM timeline_cells
GROUP BY source, rank, a, b, depth, cell // 2
"""
_NAMED_WORK = """
SELECT
    c.rank, c.a, c.b, c.start_ns, c.end_ns, c.n, c.sum_ns, any_value(w.kind) AS kind, any_value(w.name) AS name,
    any_value(k.short_name) AS short_name, any_value(k.family) AS family, any_value(w.op_name) AS op_name,
    any_value(w.call_name) AS call_name, any_value(w.call_tid) AS call_tid,
    any_value(w.call_start_ns) AS call_start_ns, any_value(w.call_dur_ns) AS call_dur_ns
FROM (SELECT * FROM timeline_cells WHERE source = 'work') c
JOIN (SELECT * FROM gpu_work WHERE {run}) w
    ON w.start_ns = c.key AND w.rank = c.rank AND w.device IS NOT DISTINCT FROM c.a
        AND w.stream IS NOT DISTINCT FROM c.b AND w.dur_ns = c.longest_ns
LEFT JOIN (SELECT name, short_name, family FROM kernel_names WHERE {run}) k ON w.kind = 'kernel' AND k.name = w.name
GROUP BY c.rank, c.a, c.b, c.cell, c.start_ns, c.end_ns, c.n, c.sum_ns
ORDER BY c.rank, c.a, c.b, c.start_ns
"""
_NAMED_CALLS = """
SELECT c.rank, c.a, c.b, c.depth, c.start_ns, c.end_ns, c.n, c.sum_ns, t.kind, t.name
FROM (SELECT * FROM timeline_cells WHERE source = 'cpu') c
JOIN (SELECT rank, node, kind, name FROM call_tree WHERE {run}) t ON t.node = c.key AND t.rank = c.rank
ORDER BY c.rank, c.a, c.b, c.depth, c.start_ns
"""
_STATE_CELLS = """
SELECT rank, a, min(start_ns), max(end_ns), {sums}
FROM timeline_cells WHERE source = 'state' GROUP BY rank, a, cell ORDER BY rank, a, cell
"""
_SAMPLES = """
WITH around AS (
    -- With the samples before and after the window, to which its lines lead.
    SELECT * FROM gpu_samples WHERE {run}
    WINDOW gpu AS (PARTITION BY rank, device ORDER BY start_ns)
    QUALIFY coalesce(lead(start_ns) OVER gpu, start_ns) >= {from_ns}
        AND coalesce(lag(start_ns) OVER gpu, start_ns) <= {to_ns}
)
SELECT rank, device, min(start_ns), avg(sm_clock_mhz), avg(power_w), avg(sm_active_pct)
FROM around
GROUP BY rank, device, (start_ns - {from_ns}) // {cell_ns}
ORDER BY 1, 2, 3
"""
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


LINKED = ("kernel-share", "copies", "ops", "cuda-api", "gaps")
"""Queries that the page links events to."""


@dataclass(frozen=True)
class PageTimeline:
    """The timeline of a page."""

    given: Mapping[str, Any]
    """What its script reads: the events, or `source`, which sends them."""
    tables: Sequence[tuple[str, str]]
    """The same as tables: commands, each with its link on a server."""
    about: str = ""
    """Which runs it shows, if not one."""

    @property
    def alt(self) -> str:
        """Return what it shows, in a sentence."""
        runs = "two runs" if self.about else "the run"
        return f"timeline of the ranks, GPUs, streams and CPU threads of {runs} on one clock"

    @property
    def part(self) -> str:
        """Return which part of the run it shows, if not all."""
        events = self.given.get("events")
        if events is None or (events["from"], events["to"]) == tuple(events["span"]):
            return ""
        start, end, whole = (f"{ns / 1e6:,.3f}" for ns in (events["from"], events["to"], events["span"][1]))
        merged = ", short events merged" if events["cell"] else ""
        return f"{start} to {end} ms of {whole} ms{merged}. analyze serve shows the whole run."


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


class Timeline:
    """The timeline of the run of an engine."""

    def __init__(self, engine: Engine, run_id: str):
        self._engine = engine
        self.run_id = run_id
        self._run = of_run(run_id)

    def _rows(self, sql: str, uses: Sequence[str] = (), **values: object) -> list[tuple[Any, ...]]:
        return self._engine.rows(sql.format(run=self._run, **values), uses)

    @cached_property
    def _zero(self) -> int:
        [(zero,)] = self._rows("SELECT min(zero_ns) FROM run_zeros WHERE {run}", ["run_zeros"])
        return zero or 0

    @cached_property
    def _lanes(self) -> dict[tuple[str, int, int | None, int | None], tuple[int, Lane]]:
        """Lanes by source, rank, and device and stream or process and thread: numbered as they are drawn."""
        streams = self._rows("SELECT rank, device, stream FROM gpu_work WHERE {run} GROUP BY ALL")
        samples = set(self._rows("SELECT DISTINCT rank, device FROM gpu_samples WHERE {run}"))
        threads = self._rows(
            "SELECT rank, pid, tid, max(depth) FILTER (kind <> 'async'), count(*), count(*) FILTER (kind = 'async'),"
            " bool_and(kind = 'overhead')"
            " FROM call_tree WHERE {run} GROUP BY ALL"
        )
        found: list[tuple[tuple[Any, ...], tuple[str, int, int | None, int | None], Lane]] = []
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
        return {key: (number, lane) for number, (_, key, lane) in enumerate(found)}

    @property
    def lanes(self) -> list[Lane]:
        """Return the lanes, as they are numbered."""
        return [lane for _, lane in self._lanes.values()]

    @cached_property
    def span(self) -> tuple[int, int]:
        """Start and end of what is drawn."""
        [(first, last)] = self._rows(
            f"SELECT min(start_ns), max(start_ns + dur_ns) FROM ({_EVENTS}) WHERE source <> 'state'"
        )
        return (0, 0) if first is None else (first - self._zero, max(last, first + 1) - self._zero)

    @cached_property
    def _gaps(self) -> list[tuple[int, int, int]]:
        """Lane, start and length of the longest gaps."""
        rows = self._rows(
            "SELECT rank, device, start_ns, dur_ns FROM gpu_segments WHERE {run} AND dur_ns > 0"
            " AND compute_kernels + comm_kernels + memcpys + memsets = 0"
            f" ORDER BY dur_ns DESC, start_ns, rank, device LIMIT {_FIRST_GAPS}"
        )
        lanes = self._lanes
        return [
            (lanes["state", rank, device, None][0], start - self._zero, dur)
            for rank, device, start, dur in rows
            if ("state", rank, device, None) in lanes
        ]

    def __bool__(self) -> bool:
        """Return whether there is anything to draw."""
        return bool(self._lanes)

    def window(
        self, from_ns: int | None = None, to_ns: int | None = None, width: int = 1_000, most: int = MOST
    ) -> dict[str, Any]:
        """Return the events that overlap a window, by default all, in at most `most` rectangles.

        `width`: cells of the window, if it has more events than that. Raises InputError for an empty window.
        """
        first, last = self.span
        start, end = first if from_ns is None else from_ns, last if to_ns is None else to_ns
        if start >= end or not abs(start) < 1 << 62 or not abs(end) < 1 << 62:
            raise InputError(f"timeline: {start} to {end} ns is not a window")
        from_ns, to_ns = start + self._zero, end + self._zero
        whole = self.count(start, end) <= most
        cells = min(max(width, _WIDTHS[0]), _WIDTHS[1])
        cell_ns = 1 if whole else max(1, -(-(end - start) // cells))
        self._engine.execute(
            _CELLS.format(events=_EVENTS.format(run=self._run), from_ns=from_ns, to_ns=to_ns, cell_ns=cell_ns)
        )
        while self._engine.rows("SELECT count(*) FROM timeline_cells")[0][0] > most:
            self._engine.execute(_FEWER_CELLS)
            cell_ns *= 2
        names = _Names()
        return {
            "span": self.span, "from": start, "to": end, "cell": 0 if whole else cell_ns,
            "lanes": [lane._asdict() for lane in self.lanes],
            "rows": [*self._work(names), *self._calls(names)], "names": names.listed(),
            "states": self._states(), "samples": self._samples(from_ns, to_ns, max(cell_ns, (end - start) // cells)),
            "steps": self._steps(from_ns, to_ns), "gaps": self._gaps,
        }  # fmt: skip

    def count(self, from_ns: int, to_ns: int) -> int:
        """Return the number of events that overlap a window."""
        from_ns, to_ns = from_ns + self._zero, to_ns + self._zero
        [(count,)] = self._rows(
            f"SELECT count(*) FROM ({_EVENTS}) WHERE start_ns < {to_ns} AND start_ns + greatest(dur_ns, 1) > {from_ns}"
        )
        return int(count)

    def _work(self, names: _Names) -> Iterable[dict[str, Any]]:
        threads = {(key[1], key[3]): number for key, (number, _) in self._lanes.items() if key[0] == "cpu"}
        lanes: dict[int, _Row] = {}
        for (
            rank,
            device,
            stream,
            start,
            end,
            n,
            busy,
            kind,
            name,
            short,
            family,
            op,
            call,
            tid,
            call_ns,
            call_dur,
        ) in self._rows(_NAMED_WORK):
            lane = self._lanes["work", rank, device, stream][0]
            row = lanes.setdefault(lane, _Row(lane, 0))
            row.add(start - self._zero, end - start, names.of(name, short, family or kind), n, busy)
            launch = n == 1 and call_ns is not None
            row.more["op"].append(names.of(op, None, "op") if n == 1 and op else -1)
            row.more["api"].append(names.of(call, None, "call") if n == 1 and call else -1)
            row.more["before"].append(start - call_ns if launch else None)
            row.more["length"].append(call_dur if launch else None)
            row.more["thread"].append(threads.get((rank, tid), -1) if launch else -1)
        return (row.columns() for row in lanes.values())

    def _calls(self, names: _Names) -> Iterable[dict[str, Any]]:
        rows: dict[tuple[int, int], _Row] = {}
        for rank, pid, tid, depth, start, end, n, busy, kind, name in self._rows(_NAMED_CALLS):
            lane = self._lanes["async" if depth < 0 else "cpu", rank, pid, tid][0]
            row = rows.setdefault((lane, depth), _Row(lane, max(depth, 0)))
            if kind == "python" and (name or "").startswith("nn.Module: "):
                kind = "module"
            row.add(start - self._zero, end - start, names.of(name, None, kind), n, busy)
        return (row.columns() for row in rows.values())

    def _states(self) -> list[dict[str, Any]]:
        sums = ", ".join(f"coalesce(sum(sum_ns) FILTER (b = {i}), 0)::BIGINT" for i in range(len(_STATES)))
        lanes: dict[int, dict[str, Any]] = {}
        for rank, device, start, end, *parts in self._rows(_STATE_CELLS, sums=sums):
            lane = self._lanes["state", rank, device, None][0]
            found = lanes.setdefault(lane, {"lane": lane, "t": [], "d": []} | {state: [] for state in _STATES[1:]})
            found["t"].append(start - self._zero)
            found["d"].append(end - start)
            total = sum(parts) or 1
            for state, part in zip(_STATES[1:], parts[1:], strict=True):
                found[state].append(round(100 * part / total))
        for found in lanes.values():
            found["t"] = _differences(found["t"])
        return list(lanes.values())

    def _samples(self, from_ns: int, to_ns: int, cell_ns: int) -> list[dict[str, Any]]:
        rows = self._rows(_SAMPLES, from_ns=from_ns, to_ns=to_ns, cell_ns=max(cell_ns, 1))
        lanes: dict[int, dict[str, Any]] = {}
        for rank, device, start, clock, power, active in rows:
            if ("samples", rank, device, None) not in self._lanes:
                continue
            lane = self._lanes["samples", rank, device, None][0]
            found = lanes.setdefault(lane, {"lane": lane, "t": [], "clock": [], "power": [], "active": []})
            found["t"].append(start - self._zero)
            for name, value in (("clock", clock), ("power", power), ("active", active)):
                found[name].append(None if value is None else round(value, 1))
        for found in lanes.values():
            found["t"] = _differences(found["t"])
        return list(lanes.values())

    def _steps(self, from_ns: int, to_ns: int) -> list[tuple[int, int, int, int]]:
        """Number, start, length and rank of the steps of the first rank that has any, unless they are too many."""
        rows = self._rows(
            "SELECT coalesce(number, turn), start_ns, dur_ns, rank FROM recorded_steps WHERE {run}"
            " AND rank = (SELECT min(rank) FROM recorded_steps WHERE {run})"
            f" AND start_ns < {to_ns} AND start_ns + dur_ns > {from_ns} ORDER BY start_ns LIMIT 501"
        )
        return [] if len(rows) > 500 else [(number, start - self._zero, dur, rank) for number, start, dur, rank in rows]

    def find(self, text: str, place: int) -> dict[str, Any]:
        """Return an event whose name has a text or whose kernel family it is, and how many there are.

        `place`: in the order of their starts, from 1.
        """
        rows = self._rows(_FIND, text=text_literal(text), place=place)
        if not rows:
            return {"hits": 0}
        [(source, rank, a, b, depth, start, dur, name, _, hits)] = rows
        lane = self._lanes["async" if depth < 0 else source, rank, a, b][0]
        shown = cut(name)
        return {
            "hits": hits, "lane": lane, "depth": max(depth, 0), "start": start - self._zero, "dur": dur, "name": shown
        }  # fmt: skip

    def moment(self, rank: int, device: int | None, start_ns: int | None, end_ns: int | None) -> Moment | None:
        """Return where a stretch of time of a GPU is drawn, or without GPU work of the first thread of a rank.

        Times are on the clock of the recording.
        """
        threads = (lane for (source, of, *_), lane in self._lanes.items() if source == "cpu" and of == rank)
        lane = self._lanes.get(("state", rank, device, None)) or (next(threads, None) if device is None else None)
        if lane is None or start_ns is None or end_ns is None:
            return None
        return Moment(lane[0], start_ns - self._zero, end_ns - start_ns)

    @cached_property
    def _step_times(self) -> list[tuple[int, int]]:
        """Start and end of each step, on all ranks."""
        rows = self._rows(
            "SELECT min(start_ns), max(start_ns + dur_ns) FROM recorded_steps WHERE {run} GROUP BY turn ORDER BY turn"
        )
        return [(start - self._zero, end - self._zero) for start, end in rows]

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
        [(launched,)] = self._rows(
            "SELECT max(start_ns + dur_ns) FROM gpu_work WHERE {run}"
            f" AND call_start_ns >= {start + self._zero} AND call_start_ns < {end + self._zero}"
        )
        return start, max(end, launched - self._zero if launched else end)


class _Names:
    """The names of rectangles, each once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | None, str], int] = {}
        self._listed: list[list[str]] = []

    def of(self, name: str | None, short: str | None, kind: str) -> int:
        """Return the number of a name."""
        key = (name, kind)
        if key not in self._numbers:
            self._numbers[key] = len(self._listed)
            shown = cut(short or name or kind)
            exact = [name] if name is not None and name != shown and len(name) <= _LONGEST_NAME else []
            self._listed.append([kind, shown, *exact])
        return self._numbers[key]

    def listed(self) -> list[list[str]]:
        """Return kind, shown name and, if it differs, the name of each number."""
        return self._listed


class _Row:
    """The rectangles of a row of a lane, as columns."""

    def __init__(self, lane: int, depth: int):
        self._lane, self._depth = lane, depth
        self._start: list[int] = []
        self._dur: list[int] = []
        self._name: list[int] = []
        self._count: list[int] = []
        self._busy: list[int] = []
        self.more: dict[str, list[Any]] = {"op": [], "api": [], "before": [], "length": [], "thread": []}

    def add(self, start: int, dur: int, name: int, count: int, busy: int) -> None:
        """Add a rectangle. `count`: its events. `busy`: the sum of their durations."""
        for column, value in zip(
            (self._start, self._dur, self._name, self._count, self._busy), (start, dur, name, count, busy), strict=True
        ):
            column.append(value)

    def columns(self) -> dict[str, Any]:
        """Return the columns for JSON; starts are differences."""
        columns: dict[str, Any] = {
            "lane": self._lane, "depth": self._depth, "t": _differences(self._start), "d": self._dur, "n": self._name,
        }  # fmt: skip
        if any(count > 1 for count in self._count):
            columns |= {"count": self._count, "busy": self._busy}
        return columns | {name: values for name, values in self.more.items() if values}


def _differences(values: Sequence[int]) -> list[int]:
    return [b - a for a, b in zip([0, *values], values, strict=False)]
