"""The statistics of verdicts: against tables of textbooks, and how often they are wrong over simulated pairs."""

from __future__ import annotations

import importlib.util
import math
import warnings
from itertools import combinations
from types import ModuleType

import pytest
from support import ROOT

from analyze.verdict.statistics import (
    POWER,
    Change,
    adjusted,
    change,
    difference,
    runs_needed,
    smallest_change,
    spread_pct,
    steps_alone,
    verdict,
)


def exp(*logs: float) -> list[float]:
    return [1000 * math.exp(x) for x in logs]


def test_interval_by_hand() -> None:
    # Means 0.01 and 0.04, both variances 0.0001: standard error sqrt(2 x 0.0001 / 3), 4 degrees of freedom, whose
    # 97.5 % quantile is 2.776 in every table of t. t = 3.674 has p = 0.0213.
    found = change(exp(0.0, 0.01, 0.02), exp(0.03, 0.04, 0.05))
    half = 2.776445 * math.sqrt(2 * 0.0001 / 3)
    assert found.change_pct == pytest.approx(100 * math.expm1(0.03))
    assert found.low_pct == pytest.approx(100 * math.expm1(0.03 - half), rel=1e-5)
    assert found.high_pct == pytest.approx(100 * math.expm1(0.03 + half), rel=1e-5)
    assert found.p_change == pytest.approx(0.0213, abs=1e-4)
    assert verdict(found) == "slower" and verdict(change(exp(0.03, 0.04, 0.05), exp(0.0, 0.01, 0.02))) == "faster"


def test_same_needs_a_margin_that_the_interval_is_in() -> None:
    # The 90 % interval is 0 +- 2.132 x 0.00816 = 0.0174: inside 2 %, outside 1.5 %.
    a, b = exp(-0.01, 0.0, 0.01), exp(-0.01, 0.0, 0.01)
    assert verdict(change(a, b, 2.0)) == "same" and verdict(change(a, b, 1.5)) == "cannot tell"
    # Shown not to be 0, and shown to be within the margin.
    small = change(exp(0.0, 0.0001, 0.0002), exp(0.001, 0.0011, 0.0012), 1.0)
    assert small.p_change is not None and small.p_change < 0.05 and verdict(small) == "same"


@pytest.mark.parametrize(("effect", "runs"), [(0.5, 64), (0.8, 26), (1.0, 17)])
def test_runs_needed_as_in_the_tables_of_cohen(effect: float, runs: int) -> None:
    # Cohen (1988), table 2.4.1: two groups, two-sided 5 %, power 80 %, by difference / standard deviation.
    assert runs_needed(0.01, 0.01, 100 * math.expm1(0.01 * effect)) == runs
    assert smallest_change(0.01, 0.01, runs, runs) <= 0.01 * effect < smallest_change(0.01, 0.01, runs - 1, runs - 1)


def test_false_discovery_control_by_hand() -> None:
    # Benjamini and Hochberg: p x 4 / rank, from the largest down the smallest so far.
    found = adjusted([Change(1.0, p_change=p) for p in (0.02, 0.5, 0.01, 0.03)] + [Change(None)])
    assert [c.p_change for c in found] == [pytest.approx(p) if p else None for p in (0.04, 0.5, 0.04, 0.04, None)]


def test_what_no_interval_is_known_of() -> None:
    for found in (change([10.0], [11.0]), change([10.0, 10.0], [11.0])):
        assert found.change_pct == pytest.approx(10) and found.low_pct is None and verdict(found) == "cannot tell"
    assert change([1.0, 0.0], [1.0, 1.0]) == Change(None) == change([], [1.0])
    assert verdict(change([0, 0], [0, 0])) == "same"
    # Runs that do not differ: a peak of memory.
    assert verdict(change([5, 5], [5, 5])) == "same" and verdict(change([5, 5], [6, 6]), "more", "less") == "more"
    assert difference([1.0], [2.0, 3.0]) is None and difference([1, 1], [3, 3]) == (2, 2)


def test_difference_by_hand() -> None:
    # As the interval above, in the unit of the values.
    low, high = difference([10, 11, 12], [13, 14, 15]) or (0, 0)
    half = 2.776445 * math.sqrt(2 / 3)
    assert (low, high) == (pytest.approx(3 - half, rel=1e-5), pytest.approx(3 + half, rel=1e-5))


def test_equal_runs_of_one_side_are_no_warning() -> None:
    """Clocks of 1980 MHz in all runs of a side: with s of B = 1 MHz, 1 +- 4.303 x 1 / sqrt(3), t of 2 degrees."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = difference([1980, 1980, 1980], [1980, 1981, 1982])
        assert verdict(change([1980, 1980, 1980], [1980, 1981, 1982])) == "same"
    assert (low, high) == (pytest.approx(1 - 4.303 / 3**0.5, abs=1e-3), pytest.approx(1 + 4.303 / 3**0.5, abs=1e-3))


def test_steps_alone_compare_stretches() -> None:
    # 40 steps are ten stretches of four with equal means: their differences cancel.
    found = steps_alone([99.0, 101.0] * 20, [109.0, 111.0] * 20)
    assert found.low_pct == found.high_pct == pytest.approx(10)
    assert steps_alone([100.0], [110.0]).low_pct is None and steps_alone([], [1.0]) == Change(None)


def test_spread_is_that_of_logarithms() -> None:
    assert spread_pct(exp(0, 0.01, 0.02)) == pytest.approx(1) and spread_pct([1.0]) is None


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    found = importlib.util.spec_from_file_location("verdicts", ROOT / "benchmarks/verdicts.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_false_alarms_and_coverage(simulation: ModuleType) -> None:
    """A/A pairs with autocorrelated steps, outliers and drift: 5 % false alarms, 95 % of intervals hold 0."""
    alarms, coverage = simulation.rates(simulation.SCENARIOS["all of these"], 10, 1500, seed=1)
    assert 4 <= alarms <= 6 and 93 <= coverage <= 97


def test_power_is_as_predicted(simulation: ModuleType) -> None:
    # Steps that do not differ: the spread of the runs is exactly 0.01.
    noise = simulation.Noise(within=0.0)
    shown, _ = simulation.rates(noise, 10, 500, seed=2, effect=smallest_change(0.01, 0.01, 10, 10), steps=1)
    assert 75 <= shown <= 85


# Undisturbed step times in ms of `collect ab -n 10 --undisturbed 30` on an H100: training of 33 and of 34 equal layers.
LAYERS_33 = (20.049, 19.949, 19.871, 20.156, 20.142, 20.123, 19.892, 19.997, 20.032, 20.010)
LAYERS_34 = (20.675, 20.534, 20.721, 20.680, 20.662, 20.703, 20.617, 20.684, 20.735, 20.637)


def test_one_layer_more_on_a_gpu() -> None:
    found = change(LAYERS_33, LAYERS_34)
    assert verdict(found) == "slower"
    assert found.low_pct < 100 / 33 < found.high_pct and found.smallest_pct < 1
    # With as many runs as it says, at least 80 % of experiments see 3 %.
    needed = runs_needed(spread_pct(LAYERS_33) / 100, spread_pct(LAYERS_34) / 100, 3)
    starts = range(len(LAYERS_33) - needed + 1)
    pairs = [(LAYERS_33[a : a + needed], LAYERS_34[b : b + needed]) for a in starts for b in starts]
    seen = [verdict(change(a, b)) == "slower" for a, b in pairs]
    assert sum(seen) >= POWER * len(seen)


# The same of a program that waits for the loss of each step: nine runs, and three with a sleep of 0.377 ms a step.
EQUAL = (12.542, 12.528, 12.513, 12.568, 12.696, 12.608, 12.544, 12.571, 12.522)
WITH_SLEEP = (12.969, 13.052, 12.907)


def test_repetitions_of_one_program_on_a_gpu() -> None:
    """Split in all 126 ways, and the other program by halves, by turns and by pairs: no side is slower."""
    for runs in (LAYERS_33, LAYERS_34):
        for a, b in ((runs[:5], runs[5:]), (runs[::2], runs[1::2]), (runs[2:7], runs[:2] + runs[7:])):
            assert verdict(change(a, b)) in ("same", "cannot tell")
    for chosen in combinations(range(len(EQUAL)), 4):
        others = [EQUAL[i] for i in range(len(EQUAL)) if i not in chosen]
        assert verdict(change([EQUAL[i] for i in chosen], others)) in ("same", "cannot tell")


def test_a_sleep_of_3_percent_is_found_with_the_runs_that_it_needs() -> None:
    spread = spread_pct(EQUAL[:6]) / 100
    needed = runs_needed(spread, spread, 3)
    assert needed == len(WITH_SLEEP)
    for runs in combinations(EQUAL, needed):
        found = change(runs, WITH_SLEEP)
        assert verdict(found) == "slower" and found.low_pct < 3 < found.high_pct
