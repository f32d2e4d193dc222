"""The statistics of a verdict: pure functions over one number for each run.

The unit of repetition is the run: steps of one run resemble each other, so more steps do not make up for fewer runs.
All tests are Welch's t test on the logarithms of the runs' means. docs/compare.md has the formulas.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

ALPHA = 0.05
"""Risk of a false alarm; intervals hold the true change with 1 - ALPHA."""
POWER = 0.8
"""Probability with which the smallest change is shown."""
MARGIN_PCT = 1.0
"""Changes up to this many % are the same, unless the user says otherwise."""
CANNOT_TELL = "cannot tell"
SAME = "same"
_FEWEST_RUNS, _MOST_RUNS = 3, 100_000
_LARGEST = math.log(100)
"""Runs that show no change below a factor of 100 show none."""
_BATCHES = 10
_LEAST_STEPS = 4


@dataclass(frozen=True)
class Change:
    """How a measure changed from A to B; None where the runs cannot say. Percentages are of A."""

    change_pct: float | None
    """Ratio of the geometric means of the runs, less 1."""
    low_pct: float | None = None
    high_pct: float | None = None
    """The 95 % interval of the change."""
    smallest_pct: float | None = None
    """The smallest change that such runs show in 80 % of experiments."""
    runs_needed: int | None = None
    """Runs of each side that show a change of the margin in 80 % of experiments."""
    p_change: float | None = None
    """Probability of such a difference between runs of equal programs."""
    p_same: float | None = None
    """The larger p value of the two one-sided tests against a change of the margin."""


def change(a: Sequence[float], b: Sequence[float], margin_pct: float = MARGIN_PCT) -> Change:
    """Return how a measure changed; `a`, `b`: its value in each run of a side.

    Zeros and negative numbers have no logarithm: then nothing is known but a change from 0 to 0.
    """
    if not a or not b:
        return Change(None)
    if not any(a) and not any(b):
        return Change(0.0, 0.0, 0.0, 0.0, 2, 1.0, 0.0) if min(len(a), len(b)) > 1 else Change(0.0)
    if min(*a, *b) <= 0:
        return Change(None)
    logs_a, logs_b = np.log(np.asarray(a, float)), np.log(np.asarray(b, float))
    difference = float(logs_b.mean() - logs_a.mean())
    if min(len(a), len(b)) < 2:
        return Change(_pct(difference))
    margin = math.log1p(margin_pct / 100)
    if not _varies(logs_a) and not _varies(logs_b):
        # All runs of a side are equal, as peaks of memory are: the change is known exactly.
        equal = abs(difference) < 1e-9
        same = 0.0 if abs(difference) <= margin else 1.0
        exact = _pct(difference)
        return Change(exact, exact, exact, 0.0, 2, 1.0 if equal else 0.0, same)
    test = _welch(logs_b, logs_a)
    interval = test.confidence_interval(1 - ALPHA)
    above = _welch(logs_b, logs_a - margin, "greater")
    below = _welch(logs_b, logs_a + margin, "less")
    spreads = float(logs_a.std(ddof=1)), float(logs_b.std(ddof=1))
    smallest = smallest_change(*spreads, len(a), len(b))
    return Change(
        _pct(difference),
        _pct(float(interval.low)),
        _pct(float(interval.high)),
        _pct(smallest) if smallest < _LARGEST else None,
        runs_needed(*spreads, margin_pct),
        float(test.pvalue),
        max(float(above.pvalue), float(below.pvalue)),
    )


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of mean(b) - mean(a), in their unit; None with fewer than two runs on a side."""
    if min(len(a), len(b)) < 2:
        return None
    x, y = np.asarray(a, float), np.asarray(b, float)
    if not np.ptp(x) and not np.ptp(y):
        return float(y[0] - x[0]), float(y[0] - x[0])
    interval = _welch(y, x).confidence_interval(1 - ALPHA)
    return float(interval.low), float(interval.high)


def verdict(found: Change, more: str = "slower", less: str = "faster") -> str:
    """Return the verdict on a change: `same`, else `more` or `less`, else `cannot tell`.

    A change that is shown to lie within the margin is the same, also where it is shown not to be 0.
    """
    if found.p_same is not None and found.p_same < ALPHA:
        return SAME
    if found.p_change is not None and found.change_pct is not None and found.p_change < ALPHA:
        return more if found.change_pct > 0 else less
    return CANNOT_TELL


def adjusted(changes: Sequence[Change]) -> list[Change]:
    """Return the changes of the rows of a table with p values that control the false discovery rate.

    By Benjamini and Hochberg: of the rows with a verdict, 5 % are expected to be wrong. Intervals stay those of a row.
    """
    result = list(changes)
    for field in ("p_change", "p_same"):
        known = [i for i, c in enumerate(result) if getattr(c, field) is not None]
        if known:
            from scipy import stats

            values = stats.false_discovery_control([getattr(result[i], field) for i in known])
            for i, p in zip(known, values, strict=True):
                changed: dict[str, Any] = {field: float(p)}
                result[i] = replace(result[i], **changed)
    return result


def smallest_change(spread_a: float, spread_b: float, runs_a: int, runs_b: int) -> float:
    """Return the smallest change (of the logarithm) that is shown with probability POWER; inf if none is.

    `spread_a`, `spread_b`: standard deviations of the logarithms of the runs' means.
    """
    from scipy import special

    of_a, of_b = spread_a**2 / runs_a, spread_b**2 / runs_b
    if not of_a + of_b:
        return 0.0
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (runs_a - 1) + of_b**2 / (runs_b - 1))
    critical = float(special.stdtrit(freedom, 1 - ALPHA / 2))
    shift = float(special.nctdtrinc(freedom, 1 - POWER, critical))
    return shift * math.sqrt(of_a + of_b) if math.isfinite(shift) else math.inf


def runs_needed(spread_a: float, spread_b: float, margin_pct: float) -> int | None:
    """Return how many runs of each side show a change of the margin with probability POWER; None for too many.

    At least three: two say too little of how runs differ.
    """
    wanted = math.log1p(margin_pct / 100)
    if not wanted:
        return None

    def enough(runs: int) -> bool:
        return smallest_change(spread_a, spread_b, runs, runs) <= wanted

    high = _FEWEST_RUNS
    if enough(high):
        return high
    while not enough(high):
        high *= 2
        if high > _MOST_RUNS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def steps_alone(a: Sequence[float], b: Sequence[float]) -> Change:
    """Return how steps of one run differ from those of another; it does not say how other runs would differ.

    Steps that follow each other resemble each other. So means of up to ten stretches of steps are compared.
    """
    if not a or not b:
        return Change(None)
    stretches = _BATCHES if min(len(a), len(b)) >= _LEAST_STEPS else 1
    means_a, means_b = (
        [float(p.mean()) for p in np.array_split(np.asarray(s, float), stretches) if p.size] for s in (a, b)
    )
    return change(means_a, means_b)


def spread_pct(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the logarithms, in %; None for fewer than two values or without logarithms."""
    if len(values) < 2 or min(values) <= 0:
        return None
    return 100 * float(np.log(np.asarray(values, float)).std(ddof=1))


def _welch(b: Any, a: Any, alternative: str = "two-sided") -> Any:
    """Return Welch's test. The runs of one side may all be equal: their variance is 0, and scipy warns of that."""
    from scipy import stats

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        return stats.ttest_ind(b, a, equal_var=False, alternative=alternative)


def _varies(logs: Any) -> bool:
    return bool(np.ptp(logs) > 1e-12)


def _pct(log: float) -> float:
    return 100 * math.expm1(log) if log < 700 else math.inf
