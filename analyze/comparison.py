"""Compare two sides: what was added, removed and changed, and whether repeated runs show that it did.

A row of a level is a measure of the whole run, a part of the step, a kernel, family, operator, module or phase.
Rows of parts are the outer join of the answers of both sides. With two runs or more a side, each row has a verdict
(`analyze.verdict`). Conditions (`--fail-if`) are over the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyze.atomic_output import atomic_output
from analyze.errors import InputError
from analyze.query.bound_query import whole_limit
from analyze.query.query_declaration import ResultColumn
from analyze.query.result import row_result
from analyze.verdict.comparability import Comparability, comparability
from analyze.verdict.conditions import Condition
from analyze.verdict.explanation import Explanation, explanation, part_changes
from analyze.verdict.part_rows import INTERVAL, judge, main_columns, part_columns, part_rows, pct, verdict_values
from analyze.verdict.sides import LEVELS, MEASURES, Side, Sides, mean_steps
from analyze.verdict.statistics import (
    MARGIN_PCT,
    adjusted,
    change,
    spread_pct,
    steps_alone,
    verdict,
)
from analyze.verdict.step_checks import step_notes

if TYPE_CHECKING:
    from analyze.query.result import Result

TIMES = ("gpu", "cpu")
"""Which time a comparison is about."""
OF_RUNS = ("measure", "run", "step")
"""Levels of the runs as a whole: a row is a measure, a measure of a run, or a part of the step."""
ALL_LEVELS = (*OF_RUNS, *LEVELS)


@dataclass(frozen=True)
class Comparison:
    """What a comparison found: the rows, how they are counted, and the conditions that hold."""

    answer: Result
    """The rows: times in ns, shares in %."""
    notes: tuple[str, ...]
    """How the numbers are counted, and what the sides do not have in common."""
    failures: tuple[str, ...]
    """The conditions of `fail_if` that hold, with their numbers."""
    unsure: tuple[str, ...] = ()
    """The conditions of `fail_if` that the runs cannot decide."""
    repeated: bool = False
    """Whether both sides have two runs or more."""
    warnings: tuple[str, ...] = ()
    """What was lost of the files that were read for it."""


def compare(
    sides: Sides,
    *,
    level: str = "measure",
    time: str = "gpu",
    per_step: bool | None = None,
    tolerance: float = 1.0,
    margin: float = MARGIN_PCT,
    fail_if: Sequence[str] = (),
    naive: bool = False,
    despite: Collection[str] = (),
    sort: str | None = None,
    limit: int | None = None,
    flame: Path | None = None,
    comment: Path | None = None,
) -> Comparison:
    """Compare the runs of both sides.

    `level`: one of ALL_LEVELS. `time`: gpu or cpu (op and phase). `per_step`: divide by the steps of each run; by
    default if all say how many they hold. `tolerance`: change in % of A's time up to which a row with as many calls is
    `same`. `margin`: change in % up to which the verdict is `same`. `fail_if`: conditions, see `Condition.parse`;
    `naive` compares the means, as if runs did not differ. `despite`: what may differ, though it makes a verdict
    meaningless. `comment`: a file for the verdict as Markdown. `flame`: a file for the operators' stacks with their
    times on both sides, as of difffolded.pl. Raises InputError.
    """
    _check(level, time, tolerance, margin)
    whole_limit(limit)  # before the work
    conditions = [Condition.parse(text) for text in fail_if]
    if flame is not None:
        from analyze.flame import check_difference

        check_difference(flame)
    judged = not naive and (level in OF_RUNS or bool(conditions))
    found = comparability(sides, despite, strict=judged)
    divided, counted = _per_step(sides, per_step)
    notes = [] if level in OF_RUNS else [counted]
    notes += _of_several_runs(sides)
    if level == "measure":
        answer = row_result(_MEASURE_COLUMNS, measure_rows(sides, found, margin), "compare", sort, limit)
        answer.main = _MEASURE_MAIN
        notes += steps_of(sides)
    elif level == "run":
        answer = row_result(_RUN_COLUMNS, run_rows(sides), "compare", sort, limit)
    elif level == "step":
        explained = explanation(sides)
        rows = step_rows(sides, explained, margin, found)
        answer = row_result(_step_columns(sides.repeated), rows, "compare", sort, limit)
        answer.main = _STEP_MAIN if sides.repeated else ()
        notes += explained.notes
    else:
        sums = [s.sums(LEVELS[level], time) for s in sides]
        rows = part_rows(LEVELS[level], sides, sums, divided, tolerance, margin, found)
        answer = row_result(part_columns(level, time, sides.repeated), rows, "compare", sort, limit)
        answer.main = main_columns(level) if sides.repeated else ()
        notes += [
            f"{s.label} has nothing at level {level}"
            for s, of_runs in zip(sides, sums, strict=True)
            if not any(of_runs.values())
        ]
    notes += found.differences
    if found.confounders and judged:
        notes.append("the GPUs differed, so times have no verdict; --despite gives them one")
    if not divided and (steps := [s.steps for s in sides]) and all(steps) and steps[0] != steps[1]:
        notes.append(f"steps differ: A holds {steps[0]}, B holds {steps[1]}")
    failures, unsure = _outcomes(conditions, sides, divided, naive, found)
    if flame is not None:
        from analyze.flame import difference

        divisors = tuple((s.steps or 1) if divided else len(s.runs) for s in sides)
        with atomic_output(flame) as part:
            part.write_text(difference([s.engine for s in sides], divisors, time), encoding="utf-8")
    notes += [f"{s.label}: {s.engine.note}" for s in sides if s.engine.note]
    notes = list(dict.fromkeys(notes))
    if comment is not None:
        text = _comment(sides, found, margin, failures, unsure, notes)
        with atomic_output(comment) as part:
            part.write_text(text, encoding="utf-8")
    return Comparison(answer, tuple(notes), tuple(failures), tuple(unsure), sides.repeated)


def _comment(
    sides: Sides,
    found: Comparability,
    margin: float,
    failures: Sequence[str],
    unsure: Sequence[str],
    notes: Sequence[str],
) -> str:
    from analyze.comment import PARTS, comment

    names = (*_MEASURE_MAIN, "smallest_pct", "runs_needed", "runs_a", "runs_b")
    measures = _selected(_MEASURE_COLUMNS, measure_rows(sides, found, margin), names)
    try:
        rows = step_rows(sides, explanation(sides), margin, found)[:PARTS]
        parts = _selected(_step_columns(sides.repeated), rows, _STEP_MAIN)
    except InputError:  # no recorded steps
        parts = None
    return comment(
        measures, parts, margin=margin, failures=failures, unsure=unsure, machine=found.confounders, notes=notes
    )


def _selected(columns: Sequence[ResultColumn], rows: Sequence[tuple[Any, ...]], names: Collection[str]) -> Result:
    """Return the columns of these names that have a value."""
    places = [i for i, c in enumerate(columns) if c.name in names and any(row[i] is not None for row in rows)]
    return row_result([columns[i] for i in places], [tuple(row[i] for i in places) for row in rows], "compare")


def _check(level: str, time: str, tolerance: float, margin: float) -> None:
    if level not in ALL_LEVELS:
        raise InputError(f"--level {level}: must be one of {', '.join(ALL_LEVELS)}")
    if time not in TIMES:
        raise InputError(f"--time {time}: must be one of {', '.join(TIMES)}")
    if time not in (LEVELS[level].total if level in LEVELS else ("gpu",)):
        raise InputError(f"--time {time}: level {level} has no CPU time; op and phase have it")
    for option, value in (("--tolerance", tolerance), ("--margin", margin)):
        if not 0 <= value < math.inf:
            raise InputError(f"{option} {value}: must be a percentage, 0 or more")


def _outcomes(
    conditions: Sequence[Condition], sides: Sides, divided: bool, naive: bool, found: Comparability
) -> tuple[list[str], list[str]]:
    """Return the conditions that hold, and those that the runs cannot decide."""
    failures, unsure = [], []
    for condition in conditions:
        outcome = (condition.judge_naively if naive else condition.judge)(sides, divided)
        if outcome.holds and not naive and found.confounders and condition.measure != "peak_memory":
            unsure.append(f"{outcome.text}; but {found.confounders[0]}")
        elif outcome.holds:
            failures.append(outcome.text)
        elif outcome.holds is None:
            unsure.append(outcome.text)
    return failures, unsure


def _of_several_runs(sides: Sides) -> list[str]:
    """Say what a side of several runs stands for."""
    return [f"{side.label}: means over {len(side.runs)} runs" for side in sides if len(side.runs) > 1]


def _per_step(sides: Sides, per_step: bool | None) -> tuple[bool, str]:
    """Return whether sums are divided by steps, and the sentence that says so."""
    a, b = (side.steps for side in sides)
    if per_step is not False and a and b:
        return True, f"calls and times are per training step (A holds {a}, B holds {b})"
    if per_step:
        unknown = " and ".join(s.label for s in sides if not s.steps)
        raise InputError(f"--per-step: {unknown} does not say how many training steps it holds")
    if per_step is None:
        return False, "calls and times are of the whole recordings: the number of training steps is not known for both"
    return False, "calls and times are of the whole recordings"


# --- Measures of the runs as a whole ---

_MEASURE_COLUMNS = (
    ResultColumn("measure", "text", "what is compared"),
    ResultColumn("unit", "text", "unit of a and b"),
    ResultColumn("a", "number", "mean of A's runs (geometric)"),
    ResultColumn("b", "number", "mean of B's runs (geometric)"),
    ResultColumn("change_pct", "%", "change in % of A"),
    *INTERVAL[:5],
    ResultColumn("runs_a", "count", "runs of A"),
    ResultColumn("runs_b", "count", "runs of B"),
    ResultColumn("between_a_pct", "%", "spread between the runs of A: standard deviation of the logarithms"),
    ResultColumn("between_b_pct", "%", "the same of B"),
    ResultColumn("within_a_pct", "%", "spread between the steps of a run of A; the median of its runs"),
    ResultColumn("within_b_pct", "%", "the same of B"),
    *INTERVAL[5:],
)
_MEASURE_MAIN = ("measure", "unit", "a", "b", "change_pct", "low_pct", "high_pct", "verdict")
_RUN_COLUMNS = (
    ResultColumn("measure", "text", "what is compared"),
    ResultColumn("unit", "text", "unit of the value"),
    ResultColumn("side", "text", "A or B"),
    ResultColumn("run", "text", "the run"),
    ResultColumn("value", "number", "the measure of the run"),
    ResultColumn("from_mean_of_a_pct", "%", "by how much it is more than the geometric mean of A"),
)


def measure_rows(sides: Sides, found: Comparability, margin: float) -> list[tuple[Any, ...]]:
    """Return a row for each measure that all runs know, and that is not 0 in all."""
    rows = []
    for measure in MEASURES:
        a, b = sides.values(measure)
        if len(a) < len(sides.a.summaries) or len(b) < len(sides.b.summaries) or not (any(a) or any(b)):
            continue
        of = change(a, b, margin)
        # A machine with other clocks takes as much memory.
        of_time = measure.name != "peak_memory"
        judged = judge(of, measure.more, measure.less, found) if of_time else verdict(of, measure.more, measure.less)
        within = [_within(sides, side) if measure.name in ("step_time", "throughput") else None for side in sides]
        rows.append(
            (
                measure.name, measure.unit, _geometric_mean(a), _geometric_mean(b), of.change_pct, of.low_pct,
                of.high_pct, judged, of.smallest_pct, of.runs_needed, len(a), len(b), spread_pct(a), spread_pct(b),
                *within, of.p_change, of.p_same,
            )
        )  # fmt: skip
    return rows


def run_rows(sides: Sides) -> list[tuple[Any, ...]]:
    """Return a row for each measure of each run: what the verdicts are computed from."""
    rows = []
    for measure in MEASURES:
        values = {side.label: sides.of_runs(measure, side) for side in sides}
        mean = _geometric_mean(list(values["A"].values())) if values["A"] else 0.0
        for label, of_runs in values.items():
            rows += [
                (measure.name, measure.unit, label, run, value, pct(value - mean, mean))
                for run, value in of_runs.items()
            ]
    return rows


def step_rows(sides: Sides, found: Explanation, margin: float, comparable: Comparability) -> list[tuple[Any, ...]]:
    """Return a row for each part of the step; times and changes add up to those of the step time."""
    parts = [p for p in part_changes(sides, found) if any(p.means) or p.hidden_a or p.hidden_b]
    whole = math.fsum(b - a for a, b in (p.means for p in parts))
    changes = adjusted([change(p.a, p.b, margin) for p in parts])
    rows = []
    for part, of in zip(parts, changes, strict=True):
        a, b = part.means
        status = "added" if not any(part.a) else "removed" if not any(part.b) else "changed"
        row = (status, part.part, a, b, b - a, pct(b - a, whole), part.hidden_a, part.hidden_b)
        rows.append((*row, *verdict_values(of, comparable)) if sides.repeated else row)
    return sorted(rows, key=lambda row: (-abs(row[4]), row[1]))


def _step_columns(repeated: bool) -> tuple[ResultColumn, ...]:
    return (
        ResultColumn("status", "text", "added, removed or changed"),
        ResultColumn("part", "text", "operator, phase, kernel family or piece of the critical path; (idle)"),
        ResultColumn("a_ns", "ns", "time of a step of A that counts for it; these add up to the step time"),
        ResultColumn("b_ns", "ns", "the same of B"),
        ResultColumn("change_ns", "ns", "B - A; these add up to the change of the step time"),
        ResultColumn("explains_pct", "%", "change in % of the change of the step time; these add up to 100"),
        ResultColumn("hidden_a_ns", "ns", "its work in A that is hidden behind other work"),
        ResultColumn("hidden_b_ns", "ns", "the same in B"),
        *(INTERVAL if repeated else ()),
    )


_STEP_MAIN = ("status", "part", "a_ns", "b_ns", "change_ns", "explains_pct", "low_pct", "high_pct", "verdict")


def steps_of(sides: Sides) -> list[str]:
    """Return notes about the steps whose times are compared."""
    steps = [sides.steps(side) for side in sides]
    if not any(steps[0].values()) or not any(steps[1].values()):
        return []
    kind = "steps timed without a profiler" if sides.undisturbed else "recorded steps"
    notes = [f"step_time is the mean of the {kind}"]
    if not sides.repeated:
        notes.append(
            "one run per side does not show how runs differ: record several (collect ab, collect run --repeat)"
        )
        lengths = [mean_steps(next(iter(s.values()))) for s in steps]
        of = steps_alone(*lengths)
        if of.change_pct is not None and of.low_pct is not None and of.high_pct is not None:
            notes.append(
                f"the steps of these runs alone: step_time {of.change_pct:+.2f} %"
                f" (95 % interval {of.low_pct:+.2f} to {of.high_pct:+.2f} %); other runs may differ by more"
            )
    for side, of_runs in zip(sides, steps, strict=True):
        notes += step_notes(side.label, of_runs)
    return notes


def _within(sides: Sides, side: Side) -> float | None:
    spreads = [spread_pct(mean_steps(steps)) for steps in sides.steps(side).values()]
    known = sorted(s for s in spreads if s is not None)
    return known[len(known) // 2] if known else None


def _geometric_mean(values: Sequence[float]) -> float:
    if min(values) <= 0:
        return math.fsum(values) / len(values)
    return math.exp(math.fsum(map(math.log, values)) / len(values))
