"""What the steps of runs say against a plain mean: warm-up, trends, two kinds of steps, a rank that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from analyze.verdict.sides import Step, mean_steps

LEAST_STEPS = 10
"""With fewer steps nothing is said, except of ranks."""
WARM_UP_PCT = 20.0
"""First steps that take this much longer than the median of the others are warm-up."""
TREND_PCT = 5.0
"""A change from the first to the last step that is said, if Kendall's tau has p < 0.001."""
SEPARATION = 5.0
"""Two kinds of steps: Ashman's D of the best split, where each kind has a fifth of the steps. D of two halves of one
normal distribution is 2.7, of a uniform one 3.5."""
RANK_PCT = 5.0


def step_notes(label: str, runs: Mapping[str, Sequence[Step]]) -> list[str]:
    """Return sentences about the steps of a side's runs; each kind names one run, and counts the others."""
    found: dict[str, list[str]] = {}
    for run, steps in runs.items():
        lengths = mean_steps(steps)
        warm = warm_up(lengths)
        said = {
            "warm-up": _longer_first(warm) if warm else None,
            "trend": trend(lengths[warm:]),
            "kinds": two_kinds(lengths[warm:]),
            "rank": unlike_rank(steps),
        }
        for kind, text in said.items():
            if text:
                found.setdefault(kind, []).append(f"{label}, run {run}: {text}")
    more = {kind: f" ({len(texts) - 1} more runs like it)" if len(texts) > 1 else "" for kind, texts in found.items()}
    return [texts[0] + more[kind] for kind, texts in found.items()]


def _longer_first(steps: int) -> str:
    which = "step takes" if steps == 1 else f"{steps} steps take"
    return f"the first {which} longer than the others: warm-up"


def warm_up(lengths: Sequence[float]) -> int:
    """Return how many of the first steps are longer than the others; 0 if more than a fifth would be."""
    if len(lengths) < LEAST_STEPS:
        return 0
    limit = median(lengths) * (1 + WARM_UP_PCT / 100)
    first = next((i for i, ns in enumerate(lengths) if ns <= limit), len(lengths))
    return first if first <= len(lengths) / 5 else 0


def trend(lengths: Sequence[float]) -> str | None:
    """Say by how much steps get longer or shorter from the first to the last: by Kendall's tau and Theil and Sen."""
    if len(lengths) < LEAST_STEPS:
        return None
    from scipy import stats

    places = np.arange(len(lengths))
    if not np.ptp(lengths) or stats.kendalltau(places, lengths).pvalue >= 0.001:
        return None
    change = 100 * float(stats.theilslopes(lengths, places)[0]) * (len(lengths) - 1) / median(lengths)
    if abs(change) < TREND_PCT:
        return None
    return f"steps get {'longer' if change > 0 else 'shorter'} by {abs(change):.0f} % from the first to the last"


def two_kinds(lengths: Sequence[float]) -> str | None:
    """Say that there are two kinds of steps, such as with and without a synchronization."""
    if len(lengths) < LEAST_STEPS:
        return None
    ordered = np.sort(np.asarray(lengths, float))
    at = int(np.argmax(np.diff(ordered))) + 1
    low, high = ordered[:at], ordered[at:]
    if min(len(low), len(high)) < len(ordered) / 5:
        return None
    spread = float(np.sqrt(low.var() + high.var()))
    apart = float(high.mean() - low.mean())
    if apart < 0.02 * low.mean() or 2**0.5 * apart <= SEPARATION * spread:
        return None
    return (
        f"two kinds of steps: {len(low)} of {low.mean() / 1e6:,.3f} ms and {len(high)} of {high.mean() / 1e6:,.3f} ms"
    )


def unlike_rank(steps: Sequence[Step]) -> str | None:
    """Say which rank's mean step differs from the median of the ranks."""
    by_rank: dict[int, list[float]] = {}
    for one in steps:
        by_rank.setdefault(one.rank, []).append(one.ns)
    means = {rank: sum(ns) / len(ns) for rank, ns in by_rank.items()}
    if len(means) < 2:
        return None
    middle = median(means.values())
    rank = max(means, key=lambda r: (round(abs(means[r] - middle)), means[r]))  # of two ranks the slower one
    off = 100 * (means[rank] / middle - 1)
    return (
        f"the mean step of rank {rank} differs from the median of the ranks by {off:+.0f} %"
        if abs(off) > RANK_PCT
        else None
    )
