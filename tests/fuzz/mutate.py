"""Ways to damage a file. Each takes bytes and a random generator, and gives bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]

_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_STRANGE = [
    b"99999999999999999999", b"9223372036854775807", b"-9223372036854775809", b"2147483648", b"-1", b"1e308", b"1e400",
    b"1e999990", b"NaN", b"inf", b"-Infinity", "²".encode(), "٣".encode(), b"0x10", b"1_000", b"abc", b"", b"null",
    b"true", b'"7"', b"[1]", b"{}", b"\xff\xfe", b"1" * 400, b"0.0000000001", b"4.5",
]  # fmt: skip
FOREIGN = [
    b"", b"   ", b"==WARNING== Note: Running with unmodified GPU clocks.", b"==PROF== Disconnected from process 5",
    b"==7== Warning: Some profiling data are not recorded.", b"epoch 1, loss 2, done", b"Loss 0.5 at step 12",
    b"Epoch: [0][10/20]  Time 0.123 (0.456)", b'it says "hello"', "naïve café ✓".encode(), b"[W] 3 warnings, 2 errors",
]  # fmt: skip
"""Lines that a program or a profiler prints, no part of any table."""
_BRACKETS = b'{}[]",:\\\n'


def _span(data: bytes, rng: random.Random, longest: int = 400) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.randint(1, longest))


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    """One bit."""
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    """The end, from anywhere."""
    return data[: rng.randrange(len(data) + 1)]


def delete_span(data: bytes, rng: random.Random) -> bytes:
    """Some bytes."""
    begin, end = _span(data, rng)
    return data[:begin] + data[end:]


def repeat_span(data: bytes, rng: random.Random) -> bytes:
    """Some bytes twice."""
    begin, end = _span(data, rng)
    return data[:end] + data[begin:end] + data[end:]


def zero_span(data: bytes, rng: random.Random) -> bytes:
    """Zeros, as a crashed file system leaves."""
    begin, end = _span(data, rng)
    return data[:begin] + bytes(end - begin) + data[end:]


def insert_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes that are no UTF-8, control characters, or brackets and quotes."""
    at = rng.randrange(len(data) + 1)
    piece = rng.choice([b"\xff", b"\xc3", b"\x00", b"\x1b]0;x\x07", bytes([rng.choice(_BRACKETS)]), b'""', b"\r\r\n"])
    return data[:at] + piece + data[at:]


def remove_bracket(data: bytes, rng: random.Random) -> bytes:
    """One bracket, quote, comma, colon or line end."""
    places = [m.start() for m in re.finditer(rb'[{}\[\]",:\n]', data)]
    if not places:
        return data
    at = rng.choice(places)
    return data[:at] + data[at + 1 :]


def replace_number(data: bytes, rng: random.Random) -> bytes:
    """A number by something that is none, or that no column holds."""
    begin = rng.randrange(len(data) + 1)
    found = _NUMBER.search(data, begin)
    return data[: found.start()] + rng.choice(_STRANGE) + data[found.end() :] if found else data


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def delete_lines(data: bytes, rng: random.Random) -> bytes:
    """A few lines."""
    lines = _lines(data)
    at = rng.randrange(len(lines) + 1)
    return b"".join(lines[:at] + lines[at + rng.randint(1, 3) :])


def repeat_line(data: bytes, rng: random.Random) -> bytes:
    """A line twice."""
    lines = _lines(data)
    if lines:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return b"".join(lines)


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    """Two lines."""
    lines = _lines(data)
    if lines:
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def swap_fields(data: bytes, rng: random.Random) -> bytes:
    """Two fields of a line."""
    lines = _lines(data)
    if lines:
        at = rng.randrange(len(lines))
        fields = lines[at].split(b",")
        a, b = rng.randrange(len(fields)), rng.randrange(len(fields))
        fields[a], fields[b] = fields[b], fields[a]
        lines[at] = b",".join(fields)
    return b"".join(lines)


def repeat_key(data: bytes, rng: random.Random) -> bytes:
    """A key of JSON twice in its object, with another value."""
    found = list(re.finditer(rb'"[A-Za-z_ ]+":\s*', data))
    if not found:
        return data
    key = rng.choice(found)
    value = rng.choice([b"1", b'"x"', b"null", b"[]", b"{}", b"-5"])
    return data[: key.start()] + key.group() + value + b"," + data[key.start() :]


def deepen(data: bytes, rng: random.Random) -> bytes:
    """Many brackets."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice([b"[", b"{", b'{"a":']) * rng.choice([10, 1000, 20000]) + data[at:]


def grow(data: bytes, rng: random.Random) -> bytes:
    """A field of a million characters."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice([b"x", b"9", b'"', b" ", b"{}"]) * rng.choice([130_000, 1_000_000]) + data[at:]


def insert_foreign(data: bytes, rng: random.Random) -> bytes:
    """Lines between others."""
    lines = _lines(data)
    for _ in range(rng.randint(1, 3)):
        lines.insert(rng.randrange(1, len(lines) + 1) if lines else 0, rng.choice(FOREIGN) + b"\n")
    return b"".join(lines)


def other_line_ends(data: bytes, rng: random.Random) -> bytes:
    """CR LF, CR CR LF, or CR LF in some lines."""
    end = rng.choice([b"\r\n", b"\r\r\n"])
    some = rng.random() < 0.3
    lines = [line.replace(b"\r", b"").replace(b"\n", b"") for line in _lines(data)]
    return b"".join(line + (b"\n" if some and rng.random() < 0.5 else end) for line in lines)


DAMAGE: list[Mutation] = [
    flip_bit, flip_bit, flip_bit, truncate, delete_span, repeat_span, zero_span, insert_bytes, insert_bytes,
    remove_bracket, remove_bracket, replace_number, replace_number, replace_number, delete_lines, repeat_line,
    swap_lines, swap_fields,
]  # fmt: skip
HARMLESS: list[Mutation] = [insert_foreign, other_line_ends]
"""What a table must stand without loss."""
JSON: list[Mutation] = [repeat_key, deepen]
RARE: list[Mutation] = [grow]


def damage(data: bytes, rng: random.Random, more: list[Mutation] | None = None) -> bytes:
    """One to three mutations."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        kinds = RARE if rng.random() < 0.02 else DAMAGE + (more or [])
        data = rng.choice(kinds)(data, rng)
    return data
