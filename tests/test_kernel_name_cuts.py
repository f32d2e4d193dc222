"""Shortened kernel names: every bracket keeps its partner."""

from __future__ import annotations

import gzip
import json
from functools import cache

import pytest
from support import SAMPLES

from analyze.plots.figure import short
from analyze.render.texts import fitted, middle_of_name, width
from schemas.kernel_rules import classify, rules

PARTNERS = {")": "(", ">": "<", "]": "[", "}": "{"}


@cache
def kernel_names() -> tuple[str, ...]:
    """Names of all kernels of the samples' traces, and of the examples of the rules."""
    names = {example for table in rules().values() for rule in table for example in rule.examples}
    for path in SAMPLES.glob("*/*/*.json.gz"):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        names |= {e["name"] for e in events if e.get("cat") == "kernel"}
    assert len(names) > 400
    return tuple(sorted(names))


def is_balanced(text: str) -> bool:
    opened = []
    for char in text.replace("->", ""):
        if char in PARTNERS.values():
            opened.append(char)
        elif char in PARTNERS and (not opened or opened.pop() != PARTNERS[char]):
            return False
    return not opened


def test_short_names_are_balanced() -> None:
    assert [n for n in kernel_names() if is_balanced(n) and not is_balanced(classify(n).short_name)] == []


@pytest.mark.parametrize("cells", [8, 12, 17, 24, 40, 60])
def test_names_that_fit_a_column_are_balanced(cells: int) -> None:
    shown = fitted(kernel_names(), cells)
    assert [s for s in shown.values() if not is_balanced(s) or width(s) > cells] == []
    assert len(set(shown.values())) == len(shown)


@pytest.mark.parametrize("length", [12, 30, 52])
def test_names_of_figures_are_balanced(length: int) -> None:
    shown = [short(name, length) for name in kernel_names()]
    assert [s for s in shown if not is_balanced(s) or len(s) > length] == []


@pytest.mark.parametrize(
    ("name", "cells", "shown"),
    [
        ("vectorized_elementwise_kernel[direct_copy_kernel_impl]", 24, "vector…rnel[direct…impl]"),
        ("void at::native::elementwise_kernel<128, 4, Functor>", 30, "void at:…ernel<128, 4, …nctor>"),
        ("f<g<h<i>>>(x)", 12, "f<g<h…>>…(x)"),
        # The name itself has a bracket without a partner.
        ("Memcpy HtoD (Pinned -> Device) and a > b", 20, "Memcpy HtoD …d a > b"),
    ],
)
def test_shortened_by_hand(name: str, cells: int, shown: str) -> None:
    assert middle_of_name(name, cells) == shown


def test_a_name_is_no_path() -> None:
    name = "void cublas::dot_kernel<float, 128, cublasTensor<float const> >(cublasDotParams)"
    assert list(fitted([name], 40).values()) == ["dot_kernel"]
    assert list(fitted([f"train > {name} > b"], 30).values()) == ["train > dot_kernel > b"]
