"""A chunk of events cut in two: the numbers that change from event to event, and the text that is left of each.

Few texts are left, and they repeat: every call of an operator with inputs of the same shapes leaves the same one. Here
is only arithmetic over bytes; what a text means, and that a number in it is one, `forms` asks the JSON decoder.

It is done in one pass by `_cutting.c` where that is compiled (`analyze.compiled`), and everywhere else by NumPy, of all
events at once: slower, and the same to the byte.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.compiled import if_compiled

compiled = if_compiled("analyze.sources.chrome._cutting")

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_AROUND = b" \t\r\n,"
_LONGEST_GAP = 64
PADDING = 64
"""Bytes behind the last event, so that words of 8 bytes may be read where a number begins."""

_BLOCK = 2 << 20
"""Bytes that are looked through at a time: they stay in the processor's cache."""
_BEFORE = 5
"""Bytes before a colon that tell which key it ends."""
_DIGITS = 18
"""Most digits of a number that is cut out, without those behind its point: they fit into int64."""
_TENS = 10 ** np.arange(9, dtype=np.uint64)
_FIRST = np.array([256**n - 1 for n in range(9)], np.uint64)
"""The first n bytes of a word."""
_ENDS = np.zeros(256, np.bool_)
_ENDS[list(b",} \t\r\n")] = True
"""What may follow a number in an object."""

_STAYING = (
    "pid", "tid", "device", "stream", "context", "queued", "cbid", "registers per thread", "shared memory",
    "blocks per SM", "warps per SM", "est. achieved occupancy %", "Device Id", "Device Type", "Fwd thread id",
    "thread id", "Group size", "fromDevice", "inDevice", "toDevice",
)  # fmt: skip
"""Keys whose numbers stay in the text: there are few of each, or they belong to the kernel. A matter of speed alone."""
_MIX = np.uint32(0x9E3779B1)
_SHIFT = np.uint32(20)


class Cut(NamedTuple):
    """A chunk of n events, which have u texts and m numbers."""

    data: bytes
    """The chunk, with something around it."""
    gap: int
    """How many bytes at the end of each event are what stands before the next."""
    starts: Ints
    """Where each event begins; n + 1 of them."""
    codes: npt.NDArray[np.int32]
    """Which text is left of each event, by its place in `texts`."""
    texts: list[bytes]
    """In order of first appearance, what stands between two events behind each."""
    first: Ints
    """The first number of each event, by its place in the following; n + 1 of them."""
    whole: Ints
    """Of each number its digits before the point; a minus sign stays in the text."""
    thousandths: Ints
    """Of each number what its digits behind the point make, 8 of them at most, half to even: 0 to 1000."""
    pointed: npt.NDArray[np.bool_]
    """Which numbers have a point."""
    exact: npt.NDArray[np.bool_]
    """Which numbers surely have no more digits behind the point."""


def cut(chunk: bytes, size: int) -> Cut | None:
    """Cut events that stand one behind the other, with the same between every two; None if that is not what they are.

    They are the first `size` bytes; is there more, and is it as between them, nothing is copied. That the events are
    well-formed is not said: what is not an event is some text of its own.
    """
    begin, end = _within(chunk, size)
    between = _BOUNDARY.search(chunk, begin, end)
    if (
        between is None
        or chunk[begin : begin + 1] != b"{"
        or len(between[0]) > _LONGEST_GAP
        or end - begin < _BEFORE
        or len(chunk) >= 2**31 - 256
    ):
        return None
    gap = between[0]
    data, last = chunk, end + len(gap) - 2
    if chunk[end:last] != gap[1:-1] or len(chunk) - last < PADDING:
        data = b"".join((memoryview(chunk)[begin:end], gap[1:-1], b" " * PADDING))
        begin, last = 0, last - begin
    return (in_numpy if compiled is None else in_one_pass)(data, begin, last, gap)


def in_one_pass(data: bytes, begin: int, last: int, gap: bytes) -> Cut:
    """The cut of the events in data[begin:last], with the gap and its brackets between every two: compiled."""
    if compiled is None:
        raise ImportError("analyze.sources.chrome._cutting is not built, or switched off")
    starts, codes, texts, first, whole, thousandths, pointed, exact = compiled.cut(
        data, begin, last, gap[:-1], _STAYS.tobytes()
    )
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


def in_numpy(data: bytes, begin: int, last: int, gap: bytes) -> Cut:
    """The same where nothing could be compiled, and what the compiled pass is held to."""
    view = np.frombuffer(data, np.uint8)
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))
    blocks = [(b, min(b + _BLOCK, last)) for b in range(begin + _BEFORE, last, _BLOCK)]
    found = [(_starts(view, words, gap, *block), *_numbers(view, words, *block)) for block in blocks]
    behind, at, length, whole, thousandths, pointed, exact = (np.concatenate(p) for p in zip(*found, strict=True))
    starts = np.concatenate(([begin], behind, [last]))
    # The text is all that is not a number: every other piece of the chunk.
    offsets = np.empty(2 * len(at) + 2, np.int32)
    offsets[0], offsets[-1] = begin, last
    offsets[1:-1:2] = at
    offsets[2:-1:2] = at + length
    pieces = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    left = pieces.take(pa.array(np.arange(0, len(pieces), 2, dtype=np.int32)))
    first = np.searchsorted(at, starts)
    before = np.append(begin, begin + np.cumsum(length))
    offsets = (starts - before[first]).astype(np.int32)
    texts = pa.Array.from_buffers(
        pa.binary(), len(starts) - 1, [None, pa.py_buffer(offsets), left.buffers()[2]]
    ).dictionary_encode()
    return Cut(
        data=data,
        gap=len(gap) - 2,
        starts=starts,
        codes=texts.indices.to_numpy(),
        texts=texts.dictionary.to_pylist(),
        first=first,
        whole=whole.view(np.int64),
        thousandths=thousandths.view(np.int64),
        pointed=pointed,
        exact=exact,
    )


def _within(chunk: bytes, size: int) -> tuple[int, int]:
    """Where a chunk of so many bytes begins and ends without the spaces and commas around it, if they are not many."""
    head, tail = chunk[: min(size, _LONGEST_GAP)], chunk[max(0, size - _LONGEST_GAP) : size]
    return len(head) - len(head.lstrip(_AROUND)), size - (len(tail) - len(tail.rstrip(_AROUND)))


def _starts(view: npt.NDArray[np.uint8], words: Words, gap: bytes, begin: int, end: int) -> Ints:
    """Where events begin behind a gap, which includes the brackets around it."""
    found: Ints = np.flatnonzero(view[begin:end] == ord("{")).astype(np.int64, copy=False)
    found += begin - (len(gap) - 1)
    found = found[np.searchsorted(found, 0) :]
    for at in range(0, len(gap), 8):
        part = gap[at : at + 8]
        found = found[words[found + at] & _FIRST[len(part)] == np.uint64(int.from_bytes(part, "little"))]
    return found + (len(gap) - 1)


def _hashes(tails: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return (tails * _MIX) >> _SHIFT


_STAYS = np.zeros(4096, np.bool_)
_STAYS[_hashes(np.array([int.from_bytes(f'"{k}'.encode()[-4:], "little") for k in _STAYING], np.uint32))] = True
"""By the last four characters of a key."""


def _numbers(
    view: npt.NDArray[np.uint8], words: Words, begin: int, end: int
) -> tuple[Ints, Ints, Words, Words, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Numbers behind `"key":` that do not stay: where their digits begin, how long they are, and what they are."""
    colons: Ints = np.flatnonzero(view[begin:end] == ord(":")).astype(np.int64, copy=False)
    colons += begin
    # Of each word the first five bytes are the end of a key, the sixth is the colon, and two follow.
    around = words[colons - _BEFORE]
    a_byte = around.view(np.uint8).reshape(-1, 8)
    space = a_byte[:, 6] == ord(" ")
    value = np.where(space, a_byte[:, 7], a_byte[:, 6])
    goes = (value - np.uint8(ord("0"))) < 10
    goes |= value == ord("-")
    goes &= a_byte[:, 4] == ord('"')
    found = np.flatnonzero(goes)
    found = found[~_STAYS[_hashes(around.view("<u4")[::2][found])]]
    at = colons[found] + 1
    at += space[found]
    at += value[found] == ord("-")

    text = words[at]
    whole, length = _digits(text)
    behind = (text >> (length << 3).view(np.uint64)).astype(np.uint8)
    sound = (length > 0) & ((length == 1) | (text.astype(np.uint8) != ord("0")))
    full = more = np.flatnonzero(length == 8)
    for _ in range(2):
        if len(more):
            part, n = _digits(words[at[more] + length[more]])
            whole[more] = whole[more] * _TENS[n] + part
            length[more] += n
            more = more[n == 8]
    behind[full] = view[at[full] + length[full]]
    sound &= length <= _DIGITS

    thousandths = np.zeros(len(at), np.uint64)
    exact: npt.NDArray[np.bool_] = np.ones(len(at), np.bool_)
    pointed: npt.NDArray[np.bool_] = behind == ord(".")
    points = more = np.flatnonzero(pointed)
    if len(points):
        thousandths[points], n = _fraction(words[at[points] + length[points] + 1])
        sound[points] &= n > 0
        exact[points] = n < 8
        length[points] += 1 + n
        more = points[n == 8]
        for _ in range(2):  # of what has still more digits, no number is made
            if len(more):
                _, n = _digits(words[at[more] + length[more]])
                length[more] += n
                more = more[n == 8]
        behind[points] = view[at[points] + length[points]]
    sound &= _ENDS[behind]
    if not sound.all():
        at, length, whole, thousandths = at[sound], length[sound], whole[sound], thousandths[sound]
        pointed, exact = pointed[sound], exact[sound]
    return at, length, whole, thousandths, pointed, exact


def _leading(words: Words) -> tuple[Words, Ints]:
    """Words of 8 characters with the digits of each turned into 0 to 9, and how many digits it begins with."""
    digits = words ^ np.uint64(0x3030303030303030)
    other = (digits & np.uint64(0x7F7F7F7F7F7F7F7F)) + np.uint64(0x7676767676767676)
    other |= digits
    other &= np.uint64(0x8080808080808080)
    lowest = (other & (~other + np.uint64(1))) >> np.uint64(7)
    n = (lowest * np.uint64(0x0001020304050607)) >> np.uint64(56)
    n[other == 0] = 8
    return digits, n.view(np.int64)


def _digits(words: Words) -> tuple[Words, Ints]:
    """The number that the leading digits of each word make, and how many they are (8 at most)."""
    digits, n = _leading(words)
    digits <<= ((8 - n) * 8).view(np.uint64)
    return _decimal(digits), n


def _decimal(digits: Words) -> Words:
    """The number that 8 bytes of 0 to 9 make, the first byte the highest: pairs, then fours, then all."""
    digits *= np.uint64(1 + (10 << 8))
    digits >>= np.uint64(8)
    digits &= np.uint64(0x00FF00FF00FF00FF)
    digits *= np.uint64(1 + (100 << 16))
    digits >>= np.uint64(16)
    digits &= np.uint64(0x0000FFFF0000FFFF)
    digits *= np.uint64(1 + (10000 << 32))
    digits >>= np.uint64(32)
    return digits


def _fraction(words: Words) -> tuple[Words, Ints]:
    """Thousandths that the leading digits of each word make behind a point, half to even, and how many they are."""
    digits, n = _leading(words)
    digits &= _FIRST[n]
    byte = np.uint64(255)
    thousandths = (digits & byte) * np.uint64(100)
    thousandths += ((digits >> np.uint64(8)) & byte) * np.uint64(10)
    thousandths += (digits >> np.uint64(16)) & byte
    more = np.flatnonzero(n > 3)
    if len(more):
        below = _decimal(digits[more]) % np.uint64(100_000)
        thousandths[more] += (below > 50_000) | ((below == 50_000) & (thousandths[more] % np.uint64(2) == 1))
    return thousandths, n
