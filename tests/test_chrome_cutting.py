"""Cutting the numbers out of events: the C code against a few lines of Python, and against decimal arithmetic."""

from __future__ import annotations

import random
import re
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import SAMPLES
from test_chrome_forms import TRACES, chunks, require_compiled

from analyze.sources.chrome import cutting
from analyze.sources.chrome.cutting import PADDING, Cut, cut
from analyze.sources.chrome.gunzip import Gunzip

NUMBER = re.compile(rb"([0-9]{1,24})(?:\.([0-9]{1,24}))?(?=[,} \t\r\n])")
TAIL = 5


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    require_compiled(cutting._cutting, "_cutting")


def check(chunk: bytes, size: int | None = None) -> Cut | None:
    """Compare a cut with what Python finds in the same bytes."""
    size = len(chunk) if size is None else size
    found = cut(chunk, size)
    if found is None:
        return None
    data, starts = found.data, found.starts.tolist()
    begin, last = starts[0], starts[-1]
    boundary = re.search(rb"\}\s*,\s*\{", data[begin:])
    assert boundary is not None and found.gap == len(boundary[0]) - 2
    first = begin + TAIL
    brackets = re.finditer(rb"(?=" + re.escape(boundary[0]) + rb")", data[:last])
    expected = [m.start() + found.gap + 1 for m in brackets if m.start() + found.gap + 1 >= first]
    assert starts == [begin, *expected, last]
    numbers = []
    for colon in re.finditer(rb'":( ?)(-?)', data[:last]):
        at = colon.start() + 1
        number = NUMBER.match(data, colon.end(), last + 1)
        key = int.from_bytes(data[at - TAIL : at - 1], "little") * 0x9E3779B1 % 2**32 >> 20
        if at < first or number is None or number.end() >= last or cutting.STAYS[key]:
            continue
        if len(number[1]) <= 18 and (len(number[1]) == 1 or number[1][:1] != b"0"):
            numbers.append(number)
    assert found.whole.tolist() == [int(n[1]) for n in numbers]
    assert found.pointed.tolist() == [n[2] is not None for n in numbers]
    assert found.exact.tolist() == [len(n[2] or b"") < 8 for n in numbers]
    assert found.thousandths.tolist() == [thousandths(n[2] or b"") for n in numbers]
    at = begin
    texts = {start: b"" for start in starts[:-1]}
    owner = begin
    for a, b, is_start in sorted([(n.start(), n.end(), False) for n in numbers] + [(s, s, True) for s in starts[1:]]):
        texts[owner] += data[at:a]
        at = b
        owner = a if is_start else owner
    assert [found.texts[code] for code in found.codes.tolist()] == list(texts.values())
    assert found.texts == list(dict.fromkeys(texts.values()))
    places = [n.start() for n in numbers]
    assert found.first.tolist() == [sum(p < start for p in places) for start in starts]
    return found


def thousandths(decimals: bytes) -> int:
    """Round the first 8 decimals of a number to thousandths."""
    return int(Decimal(f"0.{decimals[:8].decode() or 0}").scaleb(3).to_integral_value(ROUND_HALF_EVEN))


def events_of(trace: Path) -> bytes:
    """Return the bytes between the brackets of a trace's list of events."""
    with trace.open("rb") as f:
        data = Gunzip(f).read(1 << 30)
    return data[data.index(b'"traceEvents": [') + 16 : data.rindex(b"}") + 1]


def test_cut_sample() -> None:
    events = events_of(TRACES[0])
    events = events[: events.index(b"},", 200_000) + 1]
    found = check(events)
    assert found is not None and len(found.whole) > len(found.codes) > len(found.texts) > 1
    # More bytes behind the end, as when it is read from a file: they are not cut, and nothing is copied.
    end = events.index(b"},", len(events) // 2) + 1
    part = check(events, end)
    assert part is not None and part.data is events
    check(events[: end + 2 * PADDING], end)


@pytest.mark.parametrize("seed", range(20))
def test_cut_damaged_events(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(events_of(SAMPLES / "late-rank/torch/rank-0.trace.json.gz")[:50_000])
    for _ in range(10 ** rng.randint(0, 4)):
        data[rng.randrange(len(data))] = rng.choice(b'0123456789.,:{}[]"\\-e \n\x00\xff')
    check(bytes(data))


TOKENS = [
    "{", "}", "},{", "},\n  {", ",", '"ts": ', '"ts":', '"a":', '"pid":', '"tid": ', ":", '"', " ", "-", ".", "0", "7",
    "12345678", "999999999", "000", ".5", ".0005", ".00050001", "\n", "\u00e9", '":1',
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(chunks(), st.lists(st.sampled_from(TOKENS), max_size=80).map(lambda t: ("{},{" + "".join(t)).encode())),
    st.integers(0, 100),
)
@example(b"{},{", 0)
@example(b"{},{}", 0)
@example(b'{"a":1,":2},{"a":1,":2', 0)
@example(b'{"a":,"b":1},{"a":1,"b":},{"a":2,"b":}', 0)
@example(b'{"a": 1},\n  {' * 2000, 3)
def test_cut_any_bytes(chunk: bytes, less: int) -> None:
    check(chunk, max(0, len(chunk) - less))


def test_events_outside_the_data_are_refused() -> None:
    data, stays = b'{"ts": 1},{"ts": 2},' + b" " * PADDING, bytes(4096)
    assert cutting._cutting.cut(data, 0, 20, b"},", stays)[2] == [b'{"ts": },']
    for begin, last, size in ((-1, 20, 4096), (0, 21, 4096), (5, 4, 4096), (0, 20, 4095), (0, 2**62, 4096)):
        with pytest.raises(ValueError):
            cutting._cutting.cut(data, begin, last, b"},", bytes(size))
    with pytest.raises(TypeError):
        cutting._cutting.cut(bytearray(data), 0, 20, b"},", stays)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(
    numbers=st.lists(st.tuples(st.integers(0, 10**18 - 1), st.text("0123456789", max_size=12)), min_size=2, max_size=40)
)
def test_numbers_equal_decimal_arithmetic(numbers: list[tuple[int, str]]) -> None:
    texts = [f"{whole}.{behind}" if behind else str(whole) for whole, behind in numbers]
    parts = cut((chunk := ",".join(f'{{"ts": {t}}}' for t in texts).encode()), len(chunk))
    assert parts is not None and len(parts.texts) == 1
    for i, (number, (whole, behind)) in enumerate(zip(texts, numbers, strict=True)):
        assert parts.whole[i] == whole
        assert parts.pointed[i] == bool(behind)
        assert parts.exact[i] == (len(behind) < 8)
        if parts.exact[i]:
            ns = (Decimal(number) * 1000).quantize(Decimal(1), ROUND_HALF_EVEN)
            assert int(parts.whole[i]) * 1000 + int(parts.thousandths[i]) == ns
