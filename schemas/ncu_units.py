"""Converts units of Nsight Compute to base units. The rules are in `ncu_units.toml`."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

_UNITS_FILE = Path(__file__).with_name("ncu_units.toml")
_NS_PER_S = Decimal("1e9")


class UnitScale(NamedTuple):
    """A base unit, and the factor that converts a value to it."""

    unit: str
    factor: Decimal


class _Rules(NamedTuple):
    prefixes: dict[str, Decimal]
    times: dict[str, Decimal]
    words: dict[str, str]
    rates: dict[str, str]


@cache
def _rules() -> _Rules:
    document = tomllib.loads(_UNITS_FILE.read_text(encoding="utf-8"))
    factors = {t: {k: Decimal(v) for k, v in document[t].items()} for t in ("prefixes", "times")}
    return _Rules(**factors, words=document["words"], rates=document["rates"])


@cache
def scale(unit: str) -> UnitScale:
    """Convert a unit as ncu prints it: `Kbyte/block` is 1000 byte/block, `cycle/nsecond` 10^9 hz."""
    over, slash, under = unit.strip().partition("/")
    base, factor = _word(over)
    if not slash:
        return UnitScale(base, factor)
    if under in _rules().times:
        base, factor = f"{base}/s", factor * _NS_PER_S / _rules().times[under]
    else:
        divisor, divided = _word(under)
        base, factor = f"{base}/{divisor}", factor / divided
    return UnitScale(_rules().rates.get(base, base), factor)


def _word(word: str) -> UnitScale:
    rules = _rules()
    if word in rules.times:
        return UnitScale("ns", rules.times[word])
    if word in rules.words:
        return UnitScale(rules.words[word], Decimal(1))
    if word[:1] in rules.prefixes and word[1:] in rules.words:
        return UnitScale(rules.words[word[1:]], rules.prefixes[word[0]])
    return UnitScale(word, Decimal(1))
