"""Microseconds as text to ns: exact for every number that JSON can hold."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyze.sources.chrome.decimal_us import to_ns


def reference(text: str) -> int:
    """Python's own decimal arithmetic, which no array shortcut touches."""
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN))


numbers = st.one_of(
    st.integers(-(10**15), 10**15).map(str),
    st.integers(0, 46 * 10**17).map(lambda n: f"{n // 1000}.{n % 1000:03d}"),
    st.decimals(-(10**12), 10**12, places=5, allow_nan=False).map(lambda d: format(d, "f")),
    st.floats(0, 1e12, allow_nan=False).map(repr),
)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_equals_decimal_arithmetic(texts: list[str]) -> None:
    ns, known = to_ns([t.encode() for t in texts])
    assert known.all()
    assert ns.tolist() == [reference(t) for t in texts]


@given(st.lists(st.integers(0, 46 * 10**14), min_size=1, max_size=20))
def test_integer_columns_give_the_same_result(values: list[int]) -> None:
    # All with three decimals, then all without a point: the two forms that Kineto writes.
    for texts in ([f"{v // 1000}.{v % 1000:03d}" for v in values], [str(v) for v in values]):
        ns, known = to_ns([t.encode() for t in texts])
        assert known.all() and ns.tolist() == [reference(t) for t in texts]


@pytest.mark.parametrize(
    "text",
    [b"", b"NaN", b"null", b'"abc"', b"1e400", b"9300000000000000000", b"1e999990", b"1e9999999", b"-1e99999999999",
     b"4611686018427387.904", b"1_000", "\u0661".encode(), b"0" * 1000],
)  # fmt: skip
def test_values_that_are_not_times_are_null(text: bytes) -> None:
    ns, known = to_ns([b"1.500", text])
    assert ns.tolist() == [1500, 0] and known.tolist() == [True, False]


def test_a_quoted_number_is_a_number() -> None:
    assert to_ns([b'"12.5"'])[0].tolist() == [12500]


def test_empty_column() -> None:
    ns, known = to_ns([])
    assert len(ns) == len(known) == 0


def test_largest_time_is_2_to_the_62_minus_1() -> None:
    # 2^62 = 4611686018427387904: with a length of the same size it still fits into int64.
    assert to_ns([b"4611686018427387.903", b"-4611686018427387.903"])[0].tolist() == [2**62 - 1, -(2**62 - 1)]
    assert not to_ns([b"4611686018427388"])[1].any()


def test_digits_beyond_those_of_a_decimal_context_round_once() -> None:
    # 0.0014999...9 us is below 1.5 ns; rounding it to 28 digits first would give 1.5, then 2.
    assert to_ns([b"0.0014" + b"9" * 40, b"1e-999999", b"-0.0"])[0].tolist() == [1, 0, 0]
