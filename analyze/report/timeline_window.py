"""The rectangles of a window of a timeline, never more than a page can draw.

Events that begin in the same cell of time in the same row become one rectangle, with the name of the longest; in a
window with few events each has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from analyze.errors import InputError
from analyze.plots.figure import cut
from analyze.report.timeline import STATES, Timeline

MOST = 20_000
"""Most rectangles of a window: about 400 KB."""
_WIDTHS = (100, 4_000)
"""Least and most cells of a window."""
_LONGEST_NAME = 2_000
"""Longest name, in characters, that leads to its row."""

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


def window(
    timeline: Timeline, from_ns: int | None = None, to_ns: int | None = None, width: int = 1_000, most: int = MOST
) -> dict[str, Any]:
    """Return the events that overlap a window, by default all, in at most `most` rectangles.

    `width`: cells of the window, if it has more events than that. Raises InputError for an empty window.
    """
    first, last = timeline.span
    start, end = first if from_ns is None else from_ns, last if to_ns is None else to_ns
    if start >= end or not abs(start) < 1 << 62 or not abs(end) < 1 << 62:
        raise InputError(f"timeline: {start} to {end} ns is not a window")
    from_ns, to_ns = start + timeline.zero, end + timeline.zero
    whole = timeline.count(start, end) <= most
    cells = min(max(width, _WIDTHS[0]), _WIDTHS[1])
    cell_ns = 1 if whole else max(1, -(-(end - start) // cells))
    engine = timeline.engine
    engine.execute(_CELLS.format(events=timeline.events, from_ns=from_ns, to_ns=to_ns, cell_ns=cell_ns))
    while engine.rows("SELECT count(*) FROM timeline_cells")[0][0] > most:
        engine.execute(_FEWER_CELLS)
        cell_ns *= 2
    names = _Names()
    return {
        "span": timeline.span, "from": start, "to": end, "cell": 0 if whole else cell_ns,
        "lanes": [lane._asdict() for lane in timeline.lanes],
        "rows": [*_work(timeline, names), *_calls(timeline, names)], "names": names.listed,
        "states": _states(timeline),
        "samples": _samples(timeline, from_ns, to_ns, max(cell_ns, (end - start) // cells)),
        "steps": _steps(timeline, from_ns, to_ns), "gaps": timeline.gaps,
    }  # fmt: skip


def _work(timeline: Timeline, names: _Names) -> Iterable[dict[str, Any]]:
    threads = {(rank, tid): number for (source, rank, _, tid), number in timeline.numbers.items() if source == "cpu"}
    lanes: dict[int, _Row] = {}
    for rank, device, stream, start, end, n, busy, kind, name, short, family, *launched in timeline.rows(_NAMED_WORK):
        op, call, tid, call_ns, call_dur = launched
        lane = timeline.numbers["work", rank, device, stream]
        known = n == 1 and call_ns is not None
        lanes.setdefault(lane, _Row(lane, 0)).add(
            t=start - timeline.zero,
            d=end - start,
            n=names.number(name, short, family or kind),
            count=n,
            busy=busy,
            op=names.number(op, None, "op") if n == 1 and op else -1,
            api=names.number(call, None, "call") if n == 1 and call else -1,
            before=start - call_ns if known else None,
            length=call_dur if known else None,
            thread=threads.get((rank, tid), -1) if known else -1,
        )
    return (row.json() for row in lanes.values())


def _calls(timeline: Timeline, names: _Names) -> Iterable[dict[str, Any]]:
    rows: dict[tuple[int, int], _Row] = {}
    for rank, pid, tid, depth, start, end, n, busy, kind, name in timeline.rows(_NAMED_CALLS):
        lane = timeline.numbers["async" if depth < 0 else "cpu", rank, pid, tid]
        if kind == "python" and (name or "").startswith("nn.Module: "):
            kind = "module"
        number = names.number(name, None, kind)
        row = rows.setdefault((lane, depth), _Row(lane, max(depth, 0)))
        row.add(t=start - timeline.zero, d=end - start, n=number, count=n, busy=busy)
    return (row.json() for row in rows.values())


def _states(timeline: Timeline) -> list[dict[str, Any]]:
    sums = ", ".join(f"coalesce(sum(sum_ns) FILTER (b = {i}), 0)::BIGINT" for i in range(len(STATES)))
    lanes: dict[int, dict[str, Any]] = {}
    for rank, device, start, end, *parts in timeline.engine.rows(_STATE_CELLS.format(sums=sums)):
        lane = timeline.numbers["state", rank, device, None]
        found = lanes.setdefault(lane, {"lane": lane, "t": [], "d": []} | {state: [] for state in STATES[1:]})
        found["t"].append(start - timeline.zero)
        found["d"].append(end - start)
        total = sum(parts) or 1
        for state, part in zip(STATES[1:], parts[1:], strict=True):
            found[state].append(round(100 * part / total))
    return [found | {"t": _differences(found["t"])} for found in lanes.values()]


def _samples(timeline: Timeline, from_ns: int, to_ns: int, cell_ns: int) -> list[dict[str, Any]]:
    lanes: dict[int, dict[str, Any]] = {}
    for rank, device, start, *values in timeline.rows(_SAMPLES, from_ns=from_ns, to_ns=to_ns, cell_ns=max(cell_ns, 1)):
        lane = timeline.numbers.get(("samples", rank, device, None))
        if lane is None:
            continue
        found = lanes.setdefault(lane, {"lane": lane, "t": [], "clock": [], "power": [], "active": []})
        found["t"].append(start - timeline.zero)
        for name, value in zip(("clock", "power", "active"), values, strict=True):
            found[name].append(None if value is None else round(value, 1))
    return [found | {"t": _differences(found["t"])} for found in lanes.values()]


def _steps(timeline: Timeline, from_ns: int, to_ns: int) -> list[tuple[int, int, int, int]]:
    """Number, start, length and rank of the steps of the first rank that has any, unless they are too many."""
    rows = timeline.rows(
        "SELECT coalesce(number, turn), start_ns, dur_ns, rank FROM recorded_steps WHERE {run}"
        " AND rank = (SELECT min(rank) FROM recorded_steps WHERE {run})"
        f" AND start_ns < {to_ns} AND start_ns + dur_ns > {from_ns} ORDER BY start_ns LIMIT 501"
    )
    return [] if len(rows) > 500 else [(number, start - timeline.zero, dur, rank) for number, start, dur, rank in rows]


class _Names:
    """The names of rectangles, each once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | None, str], int] = {}
        self.listed: list[list[str]] = []
        """Kind, shown name and, if it differs, the name of each number."""

    def number(self, name: str | None, short: str | None, kind: str) -> int:
        """Return the number of a name."""
        key = (name, kind)
        if key not in self._numbers:
            self._numbers[key] = len(self.listed)
            shown = cut(short or name or kind)
            exact = [name] if name is not None and name != shown and len(name) <= _LONGEST_NAME else []
            self.listed.append([kind, shown, *exact])
        return self._numbers[key]


class _Row:
    """The rectangles of a row of a lane, as columns."""

    def __init__(self, lane: int, depth: int):
        self._place = {"lane": lane, "depth": depth}
        self._columns: dict[str, list[Any]] = {}

    def add(self, **values: int | None) -> None:
        """Add a rectangle: start `t`, length `d`, number of its name `n`, `count` of its events, `busy` their sum."""
        for name, value in values.items():
            self._columns.setdefault(name, []).append(value)

    def json(self) -> dict[str, Any]:
        """Return the columns for JSON; starts are differences, counts are left out where all are 1."""
        columns = self._columns | {"t": _differences(self._columns["t"])}
        if max(columns["count"]) == 1:
            del columns["count"], columns["busy"]
        return self._place | columns


def _differences(values: Sequence[int]) -> list[int]:
    return [b - a for a, b in zip([0, *values], values, strict=False)]
