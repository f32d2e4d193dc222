"""Cut the numbers that change from event to event out of a chunk; the texts that remain are few and repeat.

All calls of an operator with inputs of the same shapes have the same text. `_cutting.c` does this without knowing JSON:
`forms` asks the JSON decoder what a text means, and whether the numbers in it are numbers.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

try:
    from analyze.sources.chrome import _cutting
except ImportError:  # not compiled: the JSON decoder reads all events
    _cutting = None  # type: ignore[assignment]

Ints = npt.NDArray[np.int64]

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_AROUND = b" \t\r\n,"
_LONGEST_GAP = 64
PADDING = 64
"""Bytes behind the last event that the C code may read."""
_SHORTEST = 5
"""Bytes of the shortest event."""

_STAYING = (
    "pid", "tid", "device", "stream", "context", "queued", "cbid", "registers per thread", "shared memory",
    "blocks per SM", "warps per SM", "est. achieved occupancy %", "Device Id", "Device Type", "Fwd thread id",
    "thread id", "Group size", "fromDevice", "inDevice", "toDevice",
)  # fmt: skip
"""Keys whose numbers stay in the text: they have few values, or depend on the kernel. This affects speed only."""


def _key_hash(key: str) -> int:
    """Hash the last four characters of a quoted key as `_cutting.c` does."""
    return (int.from_bytes(f'"{key}'.encode()[-4:], "little") * 0x9E3779B1 & 0xFFFFFFFF) >> 20


_hashes = set(map(_key_hash, _STAYING))
STAYS = bytes(n in _hashes for n in range(4096))
"""By `_key_hash`: not 0 for keys whose numbers stay in the text."""


class Cut(NamedTuple):
    """A chunk of n events with u distinct texts and m numbers."""

    data: bytes
    """The chunk, possibly with bytes around it."""
    gap: int
    """Bytes between two events; they are part of the text of the first."""
    starts: Ints
    """Start of each event in `data`; shape n + 1."""
    codes: npt.NDArray[np.int32]
    """Text of each event: its index in `texts`."""
    texts: list[bytes]
    """Distinct texts in order of first appearance."""
    first: Ints
    """Index of the first number of each event in the arrays below; shape n + 1."""
    whole: Ints
    """Digits of each number before the decimal point. A minus sign stays in the text."""
    thousandths: Ints
    """The first 8 decimals of each number, rounded to thousandths half to even: 0 to 1000."""
    pointed: npt.NDArray[np.bool_]
    """Which numbers have a decimal point."""
    exact: npt.NDArray[np.bool_]
    """Which numbers have fewer than 8 decimals."""


def cut(chunk: bytes, size: int) -> Cut | None:
    """Cut the numbers out of the events in the first `size` bytes of a chunk.

    Returns None if the chunk does not look like events with the same bytes between each two, or without the C code. If
    the chunk continues with those bytes behind `size`, it is not copied. Malformed events become texts like any other.
    """
    begin, end = _strip(chunk, size)
    between = _BOUNDARY.search(chunk, begin, end)
    if (
        _cutting is None
        or between is None
        or chunk[begin : begin + 1] != b"{"
        or len(between[0]) > _LONGEST_GAP
        or end - begin < _SHORTEST
        or len(chunk) >= 2**31 - 256
    ):
        return None
    gap = between[0]
    data, last = chunk, end + len(gap) - 2
    if chunk[end:last] != gap[1:-1] or len(chunk) - last < PADDING:
        data = b"".join((memoryview(chunk)[begin:end], gap[1:-1], b" " * PADDING))
        begin, last = 0, last - begin
    starts, codes, texts, first, whole, thousandths, pointed, exact = _cutting.cut(data, begin, last, gap[:-1], STAYS)
    return Cut(
        data=data,
        gap=len(gap) - 2,
        starts=np.frombuffer(starts, np.int64),
        codes=np.frombuffer(codes, np.int32),
        texts=texts,
        first=np.frombuffer(first, np.int64),
        whole=np.frombuffer(whole, np.int64),
        thousandths=np.frombuffer(thousandths, np.int64),
        pointed=np.frombuffer(pointed, np.bool_),
        exact=np.frombuffer(exact, np.bool_),
    )


def _strip(chunk: bytes, size: int) -> tuple[int, int]:
    """Return start and end of the first `size` bytes, without at most _LONGEST_GAP spaces and commas at each end."""
    head, tail = chunk[: min(size, _LONGEST_GAP)], chunk[max(0, size - _LONGEST_GAP) : size]
    return len(head) - len(head.lstrip(_AROUND)), size - (len(tail) - len(tail.rstrip(_AROUND)))
