"""Conditions of `--fail-if`: whether a measure is shown to have changed by more, or by less, than a limit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from analyze.errors import InputError
from analyze.query.query_files import find
from analyze.verdict.sides import LEVELS, MEASURES, Side, Sides
from analyze.verdict.statistics import change, difference

UNSURE = ("pass", "fail")
"""What `--unsure` makes of a condition that the runs cannot decide."""

_UNITS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_CONDITION = re.compile(r"(.+)([<>])\s*([+-]?(?:\d++\.?\d*|\.\d+))\s*(%|ns|us|µs|ms|s)")
_TIMES = ("kernel_time", "gpu_time", "step_time", "op_time")
_OF_RUNS = {m.name: m for m in MEASURES}
_NAMED_MEASURES = ("phase", "phase_cpu", "kernel")
_KINDS = LEVELS["op"]._replace(key=("kind",))


class Outcome(NamedTuple):
    """Whether a condition holds (None: the runs cannot tell), and the numbers in a sentence."""

    holds: bool | None
    text: str


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
        kernel_time, gpu_time, step_time, op_time, phase:NAME, phase_cpu:NAME, kernel:REGEX, and in % the other measures
        of a run as a whole.
        """
        match = _CONDITION.fullmatch(text.strip())
        plain = list(dict.fromkeys([*_TIMES, *_OF_RUNS]))
        measures = ", ".join([*plain, "phase:NAME", "phase_cpu:NAME", "kernel:REGEX"])
        if not match:
            expected = "expected a condition such as 'step_time > 5%' (> or <; %, ns, us, ms or s)"
            raise InputError(f"--fail-if {text!r}: {expected}; measures: {measures}")
        measure = match.group(1).strip()
        kind, colon, name = measure.partition(":")
        if not (measure in plain or (kind in _NAMED_MEASURES and colon and name)):
            raise InputError(f"--fail-if {text!r}: there is no measure {measure!r}; there are {measures}")
        if measure in _OF_RUNS and measure not in _TIMES and match.group(4) != "%":
            raise InputError(f"--fail-if {text!r}: the limit of {measure} must be in %")
        if kind == "kernel":
            try:
                re.compile(name)
            except (re.error, OverflowError, RecursionError) as e:
                raise InputError(f"--fail-if {text!r}: {name!r} is not a regular expression: {e}") from e
        limit = float(match.group(3))
        if not math.isfinite(limit):
            raise InputError(f"--fail-if {text!r}: the limit is too large")
        return cls(text.strip(), measure, match.group(2) == ">", limit, match.group(4))

    def judge(self, sides: Sides, per_step: bool) -> Outcome:
        """Say whether the runs show that the condition holds: the 95 % interval lies beyond the limit, or before it.

        Raises InputError if it has no answer: a run has nothing of it, or A has 0 and the limit is in %.
        """
        a, b = self._values(sides, per_step)
        self._check(a, b)
        if self.unit == "%":
            found = change(a, b)
            by, interval = found.change_pct, (found.low_pct, found.high_pct)
        else:
            by = (math.fsum(b) / len(b) - math.fsum(a) / len(a)) / _UNITS[self.unit]
            known = difference(a, b)
            interval = (known[0] / _UNITS[self.unit], known[1] / _UNITS[self.unit]) if known else (None, None)
        went = f"{self.text}: {self.measure} changed by {_digits(by)} {self.unit}" if by is not None else self.text
        low, high = interval
        if low is None or high is None:
            counts = f"A has {len(a)} run{'s' * (len(a) > 1)}, B {len(b)}"
            return Outcome(None, f"{went}; {counts}: how much runs differ is not known (--naive compares the means)")
        said = f"{went} (95 % interval {_digits(low)} to {_digits(high)} {self.unit}, {len(a)} and {len(b)} runs)"
        beyond, before = (
            (low > self.limit, high <= self.limit) if self.above else (high < self.limit, low >= self.limit)
        )
        return Outcome(True if beyond else False if before else None, said)

    def judge_naively(self, sides: Sides, per_step: bool) -> Outcome:
        """Compare the means of both sides, as if runs did not differ. Raises InputError as `judge`."""
        if self.measure in _OF_RUNS and self.measure not in _TIMES:
            values = sides.values(_OF_RUNS[self.measure])
            self._check(*values)
            a, b = (math.fsum(v) / len(v) for v in values)
            change_pct = 100 * (b - a) / a
            holds = change_pct > self.limit if self.above else change_pct < self.limit
            return Outcome(
                holds, f"{self.text}: {self.measure} went from {a:,.4g} to {b:,.4g} ({_digits(change_pct)} %)"
            )
        if self.measure == "step_time":
            measured = [_mean_recorded_step(side) for side in sides]
        else:
            of_runs = [list(_of_runs(self.measure, side, per_step).values()) for side in sides]
            measured = [sum(values) / (len(values) if per_step else 1) if values else None for values in of_runs]
        self._check(*([m] if m is not None else [] for m in measured))
        a, b = (m for m in measured if m is not None)
        change_of = 100.0 * (b - a) / a if self.unit == "%" else (b - a) / _UNITS[self.unit]
        by = f"{_digits(change_of)} %" if self.unit == "%" else f"{'-' if b < a else '+'}{_time(abs(b - a))}"
        each = " per step" if self.measure == "step_time" or per_step else ""
        text = f"{self.text}: {self.measure} went from {_time(a)} to {_time(b)}{each} ({by})"
        return Outcome(change_of > self.limit if self.above else change_of < self.limit, text)

    def _check(self, a: Sequence[float], b: Sequence[float]) -> None:
        """Raise InputError if a side has nothing of the measure, or A has 0 and the limit is in %."""
        # A recording without the measure is not a fast one.
        if not a or not b:
            lacking = [label for label, values in (("A", a), ("B", b)) if not values]
            verb = "has" if len(lacking) == 1 else "have"
            raise InputError(f"--fail-if {self.text!r}: {' and '.join(lacking)} {verb} no {self._what()}")
        if self.unit == "%" and not any(a):
            raise InputError(f"--fail-if {self.text!r}: {self.measure} is 0 in A, so no change is in % of it; use ns")

    def _values(self, sides: Sides, per_step: bool) -> tuple[list[float], list[float]]:
        """The measure of each run of both sides, times in ns; of none if some run has nothing of it."""
        if self.measure in _OF_RUNS:
            scale = 1e6 if self.measure == "step_time" else 1
            a, b = ([v * scale for v in values] for values in sides.values(_OF_RUNS[self.measure]))
        else:
            a, b = (list(_of_runs(self.measure, side, per_step).values()) for side in sides)
        whole = [values if len(values) == len(side.runs) else [] for side, values in zip(sides, (a, b), strict=True)]
        return whole[0], whole[1]

    def _what(self) -> str:
        kind, _, name = self.measure.partition(":")
        return {
            "kernel_time": "kernels",
            "gpu_time": "GPU work",
            "step_time": "training steps",
            "op_time": "operators",
            "throughput": "number of images",
            "mfu": "MFU",
            "gpu_busy": "GPU work",
            "exposed_comm": "GPU work",
            "idle": "GPU work",
            "peak_memory": "peak of memory",
            "phase": f"phase {name!r}",
            "phase_cpu": f"phase {name!r}",
            "kernel": f"kernel whose name {name!r} matches",
        }[kind]


def _of_runs(measure: str, side: Side, per_step: bool) -> dict[str, float]:
    """The measure of each run that has something of it, in ns; with `per_step` divided by the steps of the run."""
    kind, _, name = measure.partition(":")
    level = {"kernel_time": LEVELS["family"], "op_time": _KINDS, "kernel": LEVELS["kernel"]}.get(kind, LEVELS["phase"])
    found = {}
    if kind == "gpu_time":
        rows = side.by_run.rows(
            "SELECT coalesce(workload_id, run_id::VARCHAR), sum(gpu_ns)::BIGINT"
            " FROM gpu_time_sums JOIN (SELECT run_id, workload_id, run_group FROM runs) USING (run_group) GROUP BY ALL",
            ["time_sums"],
        )
        found = {run: ns for run, ns in rows if ns is not None}
    else:
        side = side.preferring(level.query)
        pattern = re.compile(name if kind == "kernel" else "op" if kind == "op_time" else re.escape(name))
        matches = pattern.search if kind in ("kernel", "kernel_time") else pattern.fullmatch
        for run, sums in side.sums(level, "cpu" if kind in ("op_time", "phase_cpu") else "gpu").items():
            matching = [ns for key, (_, ns) in sums.items() if matches(key[0])]
            if matching:
                found[run] = sum(matching)
    return {run: ns / side.steps_of_runs[run] if per_step else ns for run, ns in found.items()}


def _mean_recorded_step(side: Side) -> float | None:
    rows = side.preferring("steps").engine.query(find("steps")).dicts()
    steps = [row["step_ns"] for row in rows if row["step_ns"] is not None]
    return sum(steps) / len(steps) if steps else None


def _digits(share: float) -> str:
    """Four digits that count, without an exponent."""
    return f"{Decimal(f'{share:+.4g}'):+,f}"


def _time(ns: float) -> str:
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(ns) >= factor:
            return f"{ns / factor:,.3f} {unit}"
    return f"{ns:,.0f} ns"
