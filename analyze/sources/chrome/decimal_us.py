"""Convert microseconds as decimal text to integer nanoseconds, exactly.

Kineto prints `1712345678901234.567`: nineteen digits do not fit into a double, so numbers stay text until here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
import numpy.typing as npt

MAX_NS = 2**62 - 1
"""Largest time: the sum of such a start and such a duration fits into int64."""
_LONGEST = 512
_NUMBER = re.compile(rb'\s*+"?\s*+[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,9})?\s*+"?\s*+')
_CONTEXT = Context(prec=_LONGEST + 8, rounding=ROUND_HALF_EVEN)


def to_ns(texts: Sequence[bytes | memoryview]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Convert n JSON numbers in us to nanoseconds (int64, shape n) and a mask of valid entries (bool, shape n).

    Entries may be any buffers. Digits below 1 ns are rounded half to even. Text that is not a finite number, a number
    beyond MAX_NS or more than 512 characters give 0 and False.
    """
    n = len(texts)
    joined = b"\n".join(texts)
    # Nearly all files have three decimals everywhere, or none: drop the points and parse integers in C.
    points = joined.count(b".")
    if n and points in (0, n) and not joined.translate(None, b"0123456789.\n-") and b"\n\n" not in joined:
        data = np.frombuffer(joined, dtype=np.uint8)
        ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
        starts = np.append(0, ends[:-1] + 1)
        widths_ok = bool((ends > starts).all() and (ends - starts <= 18).all())
        if points == 0 and widths_ok:
            whole = np.fromstring(joined, dtype=np.int64, sep="\n")
            if int(np.abs(whole).max()) <= MAX_NS // 1000:
                return whole * 1000, np.ones(n, np.bool_)
        if points == n and widths_ok and bool((ends - np.flatnonzero(data == ord(".")) == 4).all()):
            ns = np.fromstring(joined.replace(b".", b""), dtype=np.int64, sep="\n")  # 17 digits at most
            return ns, np.ones(n, np.bool_)
    values = [_one(bytes(t)) for t in texts]
    valid = np.array([v is not None for v in values], dtype=np.bool_)
    return np.array([v or 0 for v in values], dtype=np.int64), valid


def _one(text: bytes) -> int | None:
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return None
    value = Decimal(text.strip(b'" \t\r\n').decode())
    if value and not -_LONGEST < value.adjusted() < 18:  # 1e999999 would be expanded
        return 0 if value.adjusted() < 0 else None
    ns = int(_CONTEXT.multiply(value, Decimal(1000)).to_integral_value(ROUND_HALF_EVEN, _CONTEXT))
    return ns if abs(ns) <= MAX_NS else None
