"""How often are verdicts wrong? Simulated pairs of equal programs, and of programs that differ by what was predicted.

`python benchmarks/verdicts.py` takes about three minutes. Between runs, steps are log-normal; within a run they are
autocorrelated, drift and have outliers. False alarms should be 4 to 6 %, intervals hold the true change in 93 to 97 %,
and the smallest change that is predicted from the true spread is found in about 80 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analyze.verdict.statistics import ALPHA, change, smallest_change

PAIRS = 2000


class Noise(NamedTuple):
    """How runs and their steps differ; spreads are those of logarithms."""

    between: float = 0.01
    """Spread between runs."""
    within: float = 0.03
    """Spread of the steps of a run."""
    correlation: float = 0.0
    """Autocorrelation of steps that follow each other."""
    drift: float = 0.0
    """Spread of the change from the first to the last step of a run."""
    outliers: float = 0.0
    """Share of steps that take five times as long."""
    session: float = 0.0
    """Change of the machine from the first to the last run of both sides."""


SCENARIOS = {
    "log-normal runs": Noise(),
    "autocorrelated steps": Noise(correlation=0.9),
    "outliers": Noise(outliers=0.01),
    "drift in runs": Noise(drift=0.03),
    "all of these": Noise(correlation=0.9, outliers=0.01, drift=0.03),
    "and a drifting machine": Noise(correlation=0.9, outliers=0.01, drift=0.03, session=0.01),
}


def means(noise: Noise, moments: np.ndarray, steps: int, random: np.random.Generator) -> np.ndarray:
    """Return the mean step of runs that begin at these moments (0 to 1) of a session."""
    runs = len(moments)
    shocks = random.normal(0, noise.within, (steps, runs))
    walk = np.empty_like(shocks)
    walk[0] = shocks[0]
    for i in range(1, steps):
        walk[i] = noise.correlation * walk[i - 1] + math.sqrt(1 - noise.correlation**2) * shocks[i]
    trend = np.linspace(-0.5, 0.5, steps)[:, None] * random.normal(0, noise.drift, runs)
    logs = random.normal(0, noise.between, runs) + walk + trend + noise.session * moments
    return np.asarray((np.exp(logs) * np.where(random.random(logs.shape) < noise.outliers, 5, 1)).mean(0))


def sides(
    noise: Noise, runs: int, random: np.random.Generator, effect: float = 0.0, steps: int = 100
) -> tuple[list[float], list[float]]:
    """Return the mean steps of the runs of A and of B, which alternate (A B B A ...); B takes exp(effect) as long."""
    order = np.array([(0, 1, 1, 0)[i % 4] for i in range(2 * runs)])
    if random.random() < 0.5:
        order = 1 - order
    found = means(noise, np.linspace(0, 1, 2 * runs), steps, random)
    return found[order == 0].tolist(), (found[order == 1] * math.exp(effect)).tolist()


def rates(noise: Noise, runs: int, pairs: int, seed: int, effect: float = 0.0, steps: int = 100) -> tuple[float, float]:
    """Return the shares (%) of pairs that show a change, and whose interval holds the true one."""
    random = np.random.default_rng(seed)
    found = [change(*sides(noise, runs, random, effect, steps)) for _ in range(pairs)]
    shown = sum(c.p_change is not None and c.p_change < ALPHA for c in found)
    true = 100 * math.expm1(effect)
    held = sum(c.low_pct is not None and c.high_pct is not None and c.low_pct <= true <= c.high_pct for c in found)
    return 100 * shown / pairs, 100 * held / pairs


def main(counts: Sequence[int] = (5, 10)) -> None:
    print(f"{'scenario':24} {'runs':>4}  {'false alarms':>12}  {'coverage':>8}  {'power':>6}  (predicted 80 %)")
    for seed, (name, noise) in enumerate(SCENARIOS.items()):
        # The true spread of the runs' means, from many of them.
        many = np.log(means(noise, np.linspace(0, 1, 10_000), 100, np.random.default_rng(1000 + seed)))
        for runs in counts:
            alarms, coverage = rates(noise, runs, PAIRS, seed)
            effect = smallest_change(float(many.std()), float(many.std()), runs, runs)
            power, _ = rates(noise, runs, PAIRS, 100 + seed, effect)
            print(f"{name:24} {runs:4}  {alarms:10.1f} %  {coverage:6.1f} %  {power:4.1f} %")


if __name__ == "__main__":
    main()
