"""Rows of a comparison by part: kernels, families, operators, modules and phases of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyze.query.query_declaration import ResultColumn
from analyze.verdict.comparability import Comparability
from analyze.verdict.sides import Key, Level, Side, Sides, Sums
from analyze.verdict.statistics import CANNOT_TELL, SAME, Change, adjusted, change, verdict

INTERVAL = (
    ResultColumn("low_pct", "%", "lower end of the 95 % interval of the change"),
    ResultColumn("high_pct", "%", "upper end of that interval"),
    ResultColumn("verdict", "text", "slower, faster, more, less, same (within the margin), or cannot tell"),
    ResultColumn("smallest_pct", "%", "smallest change that such runs show in 80 % of experiments"),
    ResultColumn("runs_needed", "count", "runs of each side that show a change of the margin in 80 % of experiments"),
    ResultColumn("p_change", "number", "p value of Welch's t test that nothing changed"),
    ResultColumn("p_same", "number", "p value of the two one-sided tests that the change is beyond the margin"),
)
"""Columns of a verdict, with its interval and its power."""


def part_columns(level: str, time: str, repeated: bool) -> list[ResultColumn]:
    """Return the columns of the rows of a level; with a verdict for repeated runs."""
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
        *(INTERVAL if repeated else ()),
    ]


def main_columns(level: str) -> tuple[str, ...]:
    """Return the columns that are shown by default for repeated runs."""
    names = ("name", "path") if level == "op" else ("name",)
    return ("status", *names, "a_ns", "b_ns", "change_ns", "change_pct", "low_pct", "high_pct", "verdict", "share_pct")


def part_rows(
    level: Level,
    sides: Sides,
    found: Sequence[dict[str, Sums]],
    divided: bool,
    tolerance: float,
    margin: float,
    comparable: Comparability,
) -> list[tuple[Any, ...]]:
    """Return the rows of a level in the order of part_columns, from the sums of each run of both sides.

    `divided`: per step. `tolerance`, `margin`: see `compare`. The largest changes come first.
    """
    means = [_means(of_runs, side, divided) for of_runs, side in zip(found, sides, strict=True)]
    total_a = sum(ns for _, ns in means[0].values())
    rows, changes = [], []
    for key in {**means[0], **means[1]}:
        calls_a, a = means[0].get(key, (0, 0))
        calls_b, b = means[1].get(key, (0, 0))
        if level.drop_zeros and not a and not b:
            continue
        difference = b - a
        if key not in means[0]:
            status = "added"
        elif key not in means[1]:
            status = "removed"
        else:
            status = "same" if calls_a == calls_b and abs(difference) <= tolerance / 100 * a else "changed"
        # The name first, then what else identifies the row.
        names = (key[-1], *key[:-1])
        changes.append(change(*_values(key, found, sides, divided), margin))
        rows.append((status, *names, calls_a, calls_b, a, b, difference, pct(difference, a), pct(difference, total_a)))
    if sides.repeated:
        rows = [(*row, *verdict_values(of, comparable)) for row, of in zip(rows, adjusted(changes), strict=True)]
    change_at = 5 + len(level.key)
    return sorted(rows, key=lambda r: (-abs(r[change_at]), r[1], r[2] if len(level.key) > 1 else ""))


def _means(of_runs: dict[str, Sums], side: Side, divided: bool) -> dict[Key, tuple[float, float]]:
    """Return calls and ns by key, as means over the runs; exact of one run where they are whole numbers."""
    if len(of_runs) == 1:
        [(run, sums)] = of_runs.items()
        steps = side.steps_of_runs[run] if divided else 1
        return {key: (_per(calls, steps), _per(ns, steps)) for key, (calls, ns) in sums.items()}
    totals: dict[Key, tuple[float, float]] = {}
    for run, sums in of_runs.items():
        steps = (side.steps_of_runs[run] if divided else 1) * len(of_runs)
        for key, (calls, ns) in sums.items():
            n, total = totals.get(key, (0, 0))
            totals[key] = (n + calls / steps, total + ns / steps)
    return totals


def _values(key: Key, found: Sequence[dict[str, Sums]], sides: Sides, divided: bool) -> tuple[list[float], list[float]]:
    """Return the ns of a row in each run of A and of B."""
    a, b = (
        [sums.get(key, (0, 0))[1] / (side.steps_of_runs[run] if divided else 1) for run, sums in of_runs.items()]
        for of_runs, side in zip(found, sides, strict=True)
    )
    return a, b


def _per(value: float, steps: int) -> float:
    """Exact where it is a whole number."""
    return value // steps if value % steps == 0 else value / steps


def pct(part: float, whole: float) -> float | None:
    """Return a share in %; None of nothing."""
    return 100.0 * part / whole if whole else None


def verdict_values(of: Change, found: Comparability) -> tuple[Any, ...]:
    """Return the values of INTERVAL for a change of time."""
    said = judge(of, "slower", "faster", found)
    return of.low_pct, of.high_pct, said, of.smallest_pct, of.runs_needed, of.p_change, of.p_same


def judge(of: Change, more: str, less: str, found: Comparability) -> str:
    """Return the verdict; a change of time is not blamed on the code if the machines differed."""
    said = verdict(of, more, less)
    return CANNOT_TELL if found.confounders and said != SAME else said
