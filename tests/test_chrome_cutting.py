"""The compiled pass over a chunk cuts it as NumPy does, whatever stands in it, and numbers are what they say."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import ROOT, SAMPLES, require_compiled
from test_chrome_forms import TRACES, chunks

from analyze.sources.chrome import cutting
from analyze.sources.chrome.cutting import PADDING, Cut, cut, in_numpy, in_one_pass
from analyze.sources.chrome.gunzip import Gunzip

Way = Callable[[bytes, int, int, bytes], Cut]


@pytest.fixture(scope="module")
def compiled() -> None:
    require_compiled(cutting.compiled, "_cutting")


@pytest.fixture(scope="module", params=[in_one_pass, in_numpy])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param is in_one_pass:
        request.getfixturevalue("compiled")
    found: Way = request.param
    return found


def check_same(chunk: bytes, size: int | None = None) -> Cut | None:
    """Both ways, field by field."""
    with pytest.MonkeyPatch.context() as patch:
        found = cut(chunk, len(chunk) if size is None else size)
        patch.setattr(cutting, "compiled", None)
        expected = cut(chunk, len(chunk) if size is None else size)
    if found is None or expected is None:
        assert found is expected
        return None
    for field, own, other in zip(Cut._fields, found, expected, strict=True):
        if isinstance(other, np.ndarray):
            assert isinstance(own, np.ndarray) and own.dtype == other.dtype, field
            assert np.array_equal(own, other), field
        else:
            assert own == other, field
    return found


def events_of(trace: Path) -> bytes:
    """What stands between the brackets of a trace's list of events."""
    with trace.open("rb") as f:
        data = Gunzip(f).read(1 << 30)
    return data[data.index(b'"traceEvents": [') + 16 : data.rindex(b"}") + 1]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("trace", TRACES, ids=lambda p: f"{p.parts[-3]}-{p.name[:6]}")
def test_samples_are_cut_alike(trace: Path) -> None:
    events = events_of(trace)
    found = check_same(events)
    assert found is not None and len(found.whole) > len(found.codes) > len(found.texts) > 1
    # With something behind it, as it is read from a file: nothing is copied then, nor is more cut.
    end = events.index(b"},", len(events) // 2) + 1
    check_same(events, end)
    check_same(events[: end + 2 * PADDING], end)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(40))
def test_damaged_events_are_cut_alike(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(events_of(SAMPLES / "late-rank/torch/rank-0.trace.json.gz"))
    for _ in range(10 ** rng.randint(0, 5)):
        data[rng.randrange(len(data))] = rng.choice(b'0123456789.,:{}[]"\\-e \n\x00\xff')
    check_same(bytes(data))


TOKENS = [
    "{", "}", "},{", "},\n  {", ",", '"ts": ', '"ts":', '"a":', '"pid":', '"tid": ', ":", '"', " ", "-", ".", "0", "7",
    "12345678", "999999999", "000", ".5", ".0005", ".00050001", "\n", "\u00e9", '":1',
]  # fmt: skip


@pytest.mark.usefixtures("compiled")
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
def test_anything_is_cut_alike(chunk: bytes, less: int) -> None:
    check_same(chunk, max(0, len(chunk) - less))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "_STAYS", np.zeros_like(cutting._STAYS))
        check_same(chunk)


@pytest.mark.usefixtures("compiled")
def test_what_is_not_within_the_data_is_refused() -> None:
    data, stays = b'{"ts": 1},{"ts": 2},' + b" " * PADDING, bytes(4096)
    assert cutting.compiled is not None
    assert cutting.compiled.cut(data, 0, 20, b"},", stays)[2] == [b'{"ts": },']
    for begin, last, size in ((-1, 20, 4096), (0, 21, 4096), (5, 4, 4096), (0, 20, 4095), (0, 2**62, 4096)):
        with pytest.raises(ValueError):
            cutting.compiled.cut(data, begin, last, b"},", bytes(size))
    with pytest.raises(TypeError):
        cutting.compiled.cut(bytearray(data), 0, 20, b"},", stays)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(
    numbers=st.lists(st.tuples(st.integers(0, 10**18 - 1), st.text("0123456789", max_size=12)), min_size=2, max_size=40)
)
def test_numbers_are_those_of_decimal_arithmetic(way: Way, numbers: list[tuple[int, str]]) -> None:
    texts = [f"{whole}.{behind}" if behind else str(whole) for whole, behind in numbers]
    chunk = ",".join(f'{{"ts": {t}}}' for t in texts).encode() + b","
    parts = way(chunk + b" " * PADDING, 0, len(chunk), b"},{")
    assert len(parts.texts) == 1
    for i, (number, (whole, behind)) in enumerate(zip(texts, numbers, strict=True)):
        assert parts.whole[i] == whole
        assert parts.pointed[i] == bool(behind)
        assert parts.exact[i] == (len(behind) < 8)
        if parts.exact[i]:
            ns = (Decimal(number) * 1000).quantize(Decimal(1), ROUND_HALF_EVEN)
            assert int(parts.whole[i]) * 1000 + int(parts.thousandths[i]) == ns


def test_it_can_be_switched_off() -> None:
    ask = "from analyze.sources.chrome import cutting; print(cutting.compiled)"
    environment = os.environ | {"TRACEQUARRY_COMPILED": "0"}
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "None\n"
