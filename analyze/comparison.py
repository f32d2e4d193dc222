"""Compare two recordings: what was added, removed and changed, by kernel, family, operator or phase.

A level names a query that is asked of both sides, the columns that identify a row, and those with its calls and times;
comparing is the outer join of the two answers. Conditions (`--fail-if`) are over sums of the same answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.atomic_output import atomic_output
from analyze.errors import InputError
from analyze.query.query_files import ResultColumn, find

if TYPE_CHECKING:
    from analyze.query.engine import Engine
    from analyze.query.result import Result

TIMES = ("gpu", "cpu")
"""Which time a comparison is about."""


class Level(NamedTuple):
    """A level of comparison: the query, its parameters, what identifies a row, and where its numbers stand."""

    query: str
    params: dict[str, str]
    key: tuple[str, ...]
    calls: dict[str, str]
    """Column with the number of calls, by time (gpu, cpu); a time that is not here does not exist at the level."""
    total: dict[str, str]
    drop_zeros: bool = False
    """Whether rows without any time on either side are left out."""


LEVELS: dict[str, Level] = {
    "kernel": Level("kernel-share", {"group": "name"}, ("name",), {"gpu": "calls"}, {"gpu": "total_ns"}),
    "family": Level("kernel-share", {"group": "family"}, ("family",), {"gpu": "calls"}, {"gpu": "total_ns"}),
    "op": Level(
        "op-tree",
        {},
        ("path", "name"),
        {"gpu": "calls", "cpu": "calls"},
        {"gpu": "self_gpu_ns", "cpu": "self_cpu_ns"},
        drop_zeros=True,
    ),
    "phase": Level("phases", {}, ("phase",), {"gpu": "gpu_ops", "cpu": "calls"}, {"gpu": "gpu_ns", "cpu": "cpu_ns"}),
}


@dataclass(frozen=True)
class Side:
    """One of the two recordings, opened for questions."""

    label: str
    engine: Engine
    steps: int | None
    """Training steps in it as counted, summed over its runs; None where those of a run are not known."""
    traits: dict[str, str]
    """What should be the same on both sides: GPUs, profilers, models; `unknown` where the recording does not say."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison found: the rows, how they are counted, and the conditions that hold."""

    answer: Result
    """The rows: times in ns, shares in %."""
    notes: tuple[str, ...]
    """How the numbers are counted, and what the sides do not have in common."""
    failures: tuple[str, ...]
    """The conditions of `fail_if` that hold, with their numbers."""
    warnings: tuple[str, ...] = ()
    """What was lost of the files that were read for it."""


def compare(
    a: Engine,
    b: Engine,
    *,
    level: str = "kernel",
    time: str = "gpu",
    per_step: bool | None = None,
    tolerance: float = 1.0,
    fail_if: Sequence[str] = (),
    sort: str | None = None,
    limit: int | None = None,
    flame: Path | None = None,
) -> Comparison:
    """Compare the recordings in `a` with those in `b`.

    `level`: kernel, family, op or phase. `time`: gpu or cpu (op and phase). `per_step`: divide by the steps of each
    side; by default if both say how many they hold. `tolerance`: change in % of A's time up to which a row with as many
    calls is `same`. `fail_if`: conditions, see `Condition.parse`. `flame`: a file for the operators' stacks with their
    times on both sides, as of difffolded.pl. Raises InputError.
    """
    if level not in LEVELS:
        raise InputError(f"--level {level}: must be one of {', '.join(LEVELS)}")
    if time not in TIMES:
        raise InputError(f"--time {time}: must be one of {', '.join(TIMES)}")
    if time not in LEVELS[level].total:
        raise InputError(f"--time {time}: there is no CPU time at level {level}; it is for op and phase")
    if not 0 <= tolerance < math.inf:
        raise InputError(f"--tolerance {tolerance}: must be a percentage, 0 or more")
    conditions = [Condition.parse(text) for text in fail_if]
    if flame is not None:
        from analyze.flame import check_difference

        check_difference(flame)
    sides = (_side("A", a), _side("B", b))
    divisors, note = _divisors(sides, per_step)
    sums = [_sums(s.engine, LEVELS[level], time) for s in sides]
    rows = _rows(LEVELS[level], sums, divisors, tolerance)
    notes = [note, *_differences(sides, divisors)]
    notes += [f"{s.label} has nothing at level {level}" for s, found in zip(sides, sums, strict=True) if not found]
    failures = [f for c in conditions if (f := c.failure(sides, divisors)) is not None]
    from analyze.query.result import row_result

    if flame is not None:
        from analyze.flame import difference

        with atomic_output(flame) as part:
            part.write_text(difference([s.engine for s in sides], divisors, time), encoding="utf-8")
    notes += [f"{s.label}: {s.engine.note}" for s in sides if s.engine.note]
    return Comparison(row_result(_columns(level, time), rows, "compare", sort, limit), tuple(notes), tuple(failures))


def _side(label: str, engine: Engine) -> Side:
    if not engine.run_ids:
        raise InputError(f"compare: {label} has no run that the --where options select")
    counts = engine.rows(
        "WITH by_run AS (SELECT run_id, max(steps) AS n FROM step_counts GROUP BY run_id)"
        " SELECT n FROM runs LEFT JOIN by_run USING (run_id)",
        ["steps"],
    )
    known = all(n for (n,) in counts)
    [(gpus, profilers, models)] = engine.rows(
        "SELECT coalesce(nullif((SELECT count(*) FROM gpu_tracks), 0), sum(gpus))::VARCHAR,"
        " string_agg(DISTINCT profiler, ', ' ORDER BY profiler), string_agg(DISTINCT model, ', ' ORDER BY model)"
        " FROM runs",
        ["gpu_timeline"],
    )
    traits = {"GPUs": gpus or "unknown", "profilers": profilers or "unknown", "models": models or "unknown"}
    return Side(label, engine, int(sum(n for (n,) in counts)) if known else None, traits)


def _differences(sides: tuple[Side, Side], divisors: tuple[int, int]) -> list[str]:
    """Sentences for what the sides do not have in common."""
    a, b = sides
    counts = {s.label: len(s.engine.run_ids) for s in sides}
    said = [
        f"{label}: {n} runs taken together; --where-{label.lower()} \"run_id = '...'\" chooses one of them"
        for label, n in counts.items()
        if n > 1
    ]
    # What is counted over several runs is the number of GPUs of none of them.
    traits = [k for k in a.traits if a.traits[k] != b.traits[k] and not (said and k == "GPUs")]
    said += [f"{k} differ: A {a.traits[k]}, B {b.traits[k]}" for k in traits]
    if a.steps and b.steps and a.steps != b.steps and divisors == (1, 1):
        said.append(f"steps differ: A holds {a.steps}, B holds {b.steps}")
    return said


def _divisors(sides: tuple[Side, Side], per_step: bool | None) -> tuple[tuple[int, int], str]:
    """What each side's sums are divided by, and the sentence that says so."""
    a, b = (s.steps for s in sides)
    if per_step is not False and a and b:
        return (a, b), f"calls and times are per training step (A holds {a}, B holds {b})"
    if per_step:
        unknown = " and ".join(s.label for s in sides if not s.steps)
        raise InputError(f"--per-step: {unknown} does not say how many training steps it holds")
    if per_step is None:
        return (1, 1), "calls and times are of the whole recordings: not both say how many training steps they hold"
    return (1, 1), "calls and times are of the whole recordings"


def _columns(level: str, time: str) -> list[ResultColumn]:
    names = [ResultColumn("name", "text", "what is compared")]
    if level == "op":
        names.append(ResultColumn("path", "text", "names from the root of the call tree"))
    what = "GPU" if time == "gpu" else "CPU"
    return [
        ResultColumn("status", "text", "added, removed, changed or same"),
        *names,
        ResultColumn("calls_a", "number", "calls in A"),
        ResultColumn("calls_b", "number", "calls in B"),
        ResultColumn("a_ns", "ns", f"{what} time in A"),
        ResultColumn("b_ns", "ns", f"{what} time in B"),
        ResultColumn("change_ns", "ns", "B - A"),
        ResultColumn("change_pct", "%", "change in % of its own time in A; NULL where A has none"),
        ResultColumn("share_pct", "%", "change in % of the time of all of A; these add up to the change of the whole"),
    ]


def _rows(
    level: Level, found: Sequence[dict[tuple[str, ...], tuple[int, int]]], divisors: tuple[int, int], tolerance: float
) -> list[tuple[Any, ...]]:
    total_a = _per(sum(ns for _, ns in found[0].values()), divisors[0])
    rows = []
    for key in {**found[0], **found[1]}:
        calls_a, a = (_per(v, divisors[0]) for v in found[0].get(key, (0, 0)))
        calls_b, b = (_per(v, divisors[1]) for v in found[1].get(key, (0, 0)))
        if level.drop_zeros and not a and not b:
            continue
        change = b - a
        if key not in found[0]:
            status = "added"
        elif key not in found[1]:
            status = "removed"
        else:
            status = "same" if calls_a == calls_b and abs(change) <= tolerance / 100 * a else "changed"
        # The name first, then what else identifies the row.
        names = (key[-1], *key[:-1])
        rows.append(
            (status, *names, calls_a, calls_b, a, b, change, _pct(change, a), _pct(change, total_a)),
        )
    return sorted(rows, key=lambda r: (-abs(r[-3]), r[1], r[2] if len(level.key) > 1 else ""))


def _sums(engine: Engine, level: Level, time: str) -> dict[tuple[str, ...], tuple[int, int]]:
    """Calls and ns by key."""
    answer = engine.query(find(level.query), level.params)
    names = [c.name for c in answer.columns]
    key = [names.index(k) for k in level.key]
    calls, total = names.index(level.calls[time]), names.index(level.total[time])
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for row in answer.rows():
        k = tuple(row[i] if row[i] is not None else "(none)" for i in key)
        n, ns = sums.get(k, (0, 0))
        sums[k] = (n + (row[calls] or 0), ns + (row[total] or 0))
    return sums


def _per(value: int, steps: int) -> int | float:
    """Exact where it is a whole number."""
    return value // steps if value % steps == 0 else value / steps


def _pct(part: float, whole: float) -> float | None:
    return 100.0 * part / whole if whole else None


_UNITS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_CONDITION = re.compile(r"(.+)([<>])\s*([+-]?(?:\d++\.?\d*|\.\d+))\s*(%|ns|us|µs|ms|s)")
_PLAIN_MEASURES = ("kernel_time", "gpu_time", "step_time", "op_time")
_NAMED_MEASURES = ("phase", "phase_cpu", "kernel")


class Condition(NamedTuple):
    """A condition under which a comparison fails: a measure changed by more, or by less, than a limit."""

    text: str
    measure: str
    above: bool
    limit: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read `MEASURE > LIMIT` or `MEASURE < LIMIT`; raises InputError.

        The measure's change from A to B is compared with the limit: in % of A, or in ns, us, ms or s. Measures:
        kernel_time, gpu_time, step_time, op_time, phase:NAME, phase_cpu:NAME, kernel:REGEX.
        """
        match = _CONDITION.fullmatch(text.strip())
        measures = ", ".join([*_PLAIN_MEASURES, "phase:NAME", "phase_cpu:NAME", "kernel:REGEX"])
        if not match:
            raise InputError(f"--fail-if {text!r}: must read MEASURE > 5% (or < ; %, ns, us, ms or s); {measures}")
        measure = match.group(1).strip()
        kind, colon, name = measure.partition(":")
        if not (measure in _PLAIN_MEASURES or (kind in _NAMED_MEASURES and colon and name)):
            raise InputError(f"--fail-if {text!r}: there is no measure {measure!r}; there are {measures}")
        if kind == "kernel":
            try:
                re.compile(name)
            except (re.error, OverflowError, RecursionError) as e:
                raise InputError(f"--fail-if {text!r}: {name!r} is not a regular expression: {e}") from e
        limit = float(match.group(3))
        if not math.isfinite(limit):
            raise InputError(f"--fail-if {text!r}: the limit is too large a number")
        return cls(text.strip(), measure, match.group(2) == ">", limit, match.group(4))

    def failure(self, sides: tuple[Side, Side], divisors: tuple[int, int]) -> str | None:
        """What held, with the numbers; None if the condition does not hold.

        Raises InputError if it has no answer: a side has nothing of it, or A has 0 and the limit is in %.
        """
        measured = [_measure(self.measure, s.engine) for s in sides]
        if self.measure == "step_time":
            # A mean per step already.
            divisors = (1, 1)
        # A recording without what is asked for is not a fast one.
        known = [m for m in measured if m is not None]
        if len(known) < len(sides):
            lacking = [s.label for s, m in zip(sides, measured, strict=True) if m is None]
            verb = "has" if len(lacking) == 1 else "have"
            raise InputError(f"--fail-if {self.text!r}: {' and '.join(lacking)} {verb} no {self._what()}")
        a, b = (m / n for m, n in zip(known, divisors, strict=True))
        if self.unit == "%" and not a:
            raise InputError(f"--fail-if {self.text!r}: {self.measure} is 0 in A, so no change is in % of it; use ns")
        change = 100.0 * (b - a) / a if self.unit == "%" else (b - a) / _UNITS[self.unit]
        if not (change > self.limit if self.above else change < self.limit):
            return None
        by = f"{_digits(change)} %" if self.unit == "%" else f"{'-' if b < a else '+'}{_time(abs(b - a))}"
        each = " per step" if self.measure == "step_time" or max(divisors) > 1 else ""
        return f"{self.text}: {self.measure} went from {_time(a)} to {_time(b)}{each} ({by})"

    def _what(self) -> str:
        kind, _, name = self.measure.partition(":")
        return {
            "kernel_time": "kernels",
            "gpu_time": "GPU work",
            "step_time": "training steps",
            "op_time": "operators",
            "phase": f"phase {name!r}",
            "phase_cpu": f"phase {name!r}",
            "kernel": f"kernel whose name {name!r} matches",
        }[kind]


def _measure(measure: str, engine: Engine) -> float | None:
    """Value of a measure in ns; None where the recording has nothing of the kind."""
    kind, _, name = measure.partition(":")
    if kind == "kernel_time":
        rows = _sums(engine, LEVELS["family"], "gpu")
        return sum(ns for _, ns in rows.values()) if rows else None
    if kind == "gpu_time":
        [(value,)] = engine.rows("SELECT sum(gpu_ns)::BIGINT FROM gpu_time_sums", ["time_sums"])
        return value
    if kind == "step_time":
        rows_of_steps = engine.query(find("steps")).arrow().to_pylist()
        steps = [row["step_ns"] for row in rows_of_steps if row["step_ns"] is not None]
        return sum(steps) / len(steps) if steps else None
    if kind == "op_time":
        rows_of_ops = [r for r in engine.query(find("op-tree")).arrow().to_pylist() if r["kind"] == "op"]
        return sum(r["self_cpu_ns"] for r in rows_of_ops) if rows_of_ops else None
    if kind == "kernel":
        pattern = re.compile(name)
        matching = [ns for (n,), (_, ns) in _sums(engine, LEVELS["kernel"], "gpu").items() if pattern.search(n)]
        return sum(matching) if matching else None
    time = "cpu" if kind == "phase_cpu" else "gpu"
    found = _sums(engine, LEVELS["phase"], time).get((name,))
    return found[1] if found else None


def _digits(share: float) -> str:
    """Four digits that count, without an exponent."""
    return f"{Decimal(f'{share:+.4g}'):+,f}"


def _time(ns: float) -> str:
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(ns) >= factor:
            return f"{ns / factor:,.3f} {unit}"
    return f"{ns:,.0f} ns"
