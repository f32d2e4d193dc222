"""Events read by their forms equal events decoded one by one."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support import SAMPLES, lines_run
from traces import event, kernel

from analyze.sources.chrome import cutting
from analyze.sources.chrome.category_columns import CATEGORIES
from analyze.sources.chrome.events import Args, Tally
from analyze.sources.chrome.forms import Forms
from analyze.sources.chrome.json_events import TraceFile, read_chunk
from analyze.sources.chrome.reader import Decoded, decode
from analyze.sources.chrome.tables import Batches

TRACES = sorted(SAMPLES.glob("*/torch/*.json.gz"))


def can_compile() -> bool:
    """Whether there is a C compiler that finds Python.h."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "")
    command += ["-fsyntax-only", f"-I{sysconfig.get_path('include')}", "-x", "c", "-"]
    try:
        return subprocess.run(command, input=b"#include <Python.h>\n", capture_output=True).returncode == 0
    except OSError:
        return False


def require_compiled(module: object, name: str) -> None:
    """Skip without a C compiler. Fail if there is one and the module is missing: an installation failed."""
    if module is not None:
        return
    assert not can_compile(), f"{name} is not there: python setup.py build_ext --inplace says why, or makes it"
    pytest.skip(f"no C compiler that finds Python.h: the JSON decoder replaces {name}.c")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    require_compiled(cutting._cutting, "_cutting")


def one_by_one(chunk: bytes, base_ns: int = 0) -> Decoded:
    return decode(chunk, base_ns, forms=None)


def by_form(chunk: bytes, base_ns: int = 0) -> Decoded:
    """Read a chunk by its forms, however small it is."""
    return decode(chunk, base_ns, forms=Forms(least=0))


def plain(batch: pa.RecordBatch) -> list[pa.Array]:
    return [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for c in batch.columns]


def check_same(found: Decoded, expected: Decoded) -> None:
    assert (found.whole, found.tally) == (expected.whole, expected.tally)
    assert list(found.batches) == list(expected.batches)
    for table, batch in expected.batches.items():
        own = found.batches[table]
        own.validate(full=True)
        assert own.schema.equals(batch.schema)
        assert plain(own) == plain(batch)
        for a, b in zip(own.columns, batch.columns, strict=True):
            if pa.types.is_dictionary(a.type):  # kernel names are taken from it
                assert set(a.dictionary.to_pylist()) == set(b.dictionary.to_pylist())


def text(events: list[dict[str, Any]], between: str = ",\n  ", **layout: Any) -> bytes:
    return between.join(json.dumps(e, **layout) for e in events).encode()


@pytest.mark.parametrize("trace", TRACES, ids=lambda p: "-".join((p.parts[-3], p.name.split(".")[0])))
def test_samples_are_read_by_event_form(tmp_path: Path, trace: Path) -> None:
    """A sample that is decoded event by event instead would only be slower."""
    path = tmp_path / "t.json"
    path.write_bytes(gzip.decompress(trace.read_bytes()))
    chunks = list(TraceFile(path).chunks())
    forms = Forms(least=0)
    for chunk in chunks[:-1]:
        data = read_chunk(chunk)
        tally = Tally()
        batches = forms.build(data, len(data), 7, tally)
        assert batches is not None
        check_same(Decoded(batches, tally, True), one_by_one(data, 7))
        found = decode(chunk, 7, forms=forms)
        check_same(found, one_by_one(data, 7))
        check_same(pickle.loads(pickle.dumps(found)), found)
    known = [form for form in forms.known.forms.values() if form]
    assert len(known) > 0.95 * len(forms.known.forms)
    [_, last] = chunks  # the last event, and what is behind it
    assert last.end - last.start < 4096  # type: ignore[union-attr]


def test_decoded_rows_can_be_pickled() -> None:
    """Without columns that are NULL throughout, and empty ones among them."""
    for events in ([kernel("k", 1, 1, correlation=3), kernel("l", 2, 1)], [], [{"ph": "s", "ts": 1}]):
        found = by_form(text(events), 5)
        check_same(pickle.loads(pickle.dumps(found)), found)


def test_known_forms_are_read_without_python_per_event() -> None:
    def chunk(events: int, first: int) -> bytes:
        ids = range(first, first + events)
        return text([kernel("k", 7 * i, 2, correlation=i, **{"External id": 5 * i}) for i in ids])

    forms = Forms(least=0)
    assert forms.build(chunk(50, 1000), len(chunk(50, 1000)), 0, Tally()) is not None
    found: list[Batches | None] = []
    few, many = chunk(50, 0), chunk(5000, 0)
    lines = [lines_run(lambda c=c: found.append(forms.build(c, len(c), 0, Tally()))) for c in (few, many)]  # type: ignore[misc]
    assert lines[1] <= lines[0]
    for batches, events in zip(found, (50, 5000), strict=True):
        assert batches is not None
        rows = batches["kernels"]
        assert rows.column("start_ns").to_pylist() == [7000 * i for i in range(events)]
        assert rows.column("correlation_id").to_pylist() == list(range(events))
        assert rows.column("op_id").to_pylist() == [5 * i for i in range(events)]


NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**17, 10**18]),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**15), max_value=10**15),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-100, max_value=10**6),
).map(str)
ODD = st.sampled_from(
    ["007", "-0", "-0.0005", "0.0005", "0.0015", "1.", ".5", "1e3", "-", "", "null", "NaN", '"5"', '"Spans"', "[1]",
     "{}", "1.0", "0.12345678", "0.123456789", "0.000500001", "1.9995", "12345678.12345678901234567890", "true",
     '"a\\": 5, b"', '"\\u00e9"', '"\u00e9"', '"\\ud800"', "1 ", " 1", "--1"]
)  # fmt: skip
KEYS = sorted({f.encode_name for f in structs.fields(Args)} | {"Ev Idx", "cbid", "Some Future Key"})
NAMES = st.sampled_from(
    ["aten::mm", "[memory]", "ProfilerStep#1", "Memcpy HtoD (Pinned -> Device)", "a}, {b", "x::y: 5,", 'q\\": 5,']
)
PLACES = [*CATEGORIES, "Kernel", "Operator", "ac2g", "Trace", "unknown", ""]


@st.composite
def forms_of_events(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """The parts of an event around its numbers, and the numbers of a few events."""
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=6, unique=draw(st.booleans())))
    phase = draw(st.sampled_from(["X", "X", "X", "i", "s", "M", "B", ""]))
    colon = draw(st.sampled_from([": ", ":", " : "]))
    head = f'{{"ph"{colon}"{phase}", "cat"{colon}"{draw(st.sampled_from(PLACES))}", "name"{colon}"{draw(NAMES)}"'
    parts = [f'{head}, "pid"{colon}', f', "tid"{colon}', f', "ts"{colon}', f', "dur"{colon}']
    lead = f', "args"{colon}{{'
    for key in keys:
        parts.append(f'{lead}"{key}"{colon}')
        lead = ", "
    return parts, ["}}" if keys else "}"]


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """Events of a few forms, each with numbers of its own, some of them odd."""
    found = []
    for parts, end in draw(st.lists(forms_of_events(), min_size=1, max_size=3)):
        usual = draw(st.lists(NUMBERS, min_size=len(parts), max_size=len(parts)))
        for _ in range(draw(st.integers(1, 6))):
            own = [draw(st.one_of(st.just(n), NUMBERS)) for n in usual]
            if draw(st.integers(0, 9)) == 0:
                own[draw(st.integers(0, len(own) - 1))] = draw(ODD)
            found.append("".join(p + n for p, n in zip(parts, own, strict=True)) + "".join(end))
    draw(st.randoms(use_true_random=False)).shuffle(found)
    between = draw(st.sampled_from([",\n  ", ",", ", ", " ,\r\n\t", ",,"]))
    return between.join(found).encode("utf-8", "surrogatepass")


@settings(max_examples=50, deadline=None)
@given(st.lists(chunks(), min_size=1, max_size=3), st.sampled_from([0, 1, -(10**15), 2**61]))
@example([text([kernel("k", 1.5, 1), kernel("k", 2, 1), {"ph": "X"}])], 0)
@example([text([kernel("k", i, i - 1) for i in range(4)])], 0)
@example([text([kernel("k", i, -1) for i in range(4)])], 0)
@example([text([kernel("k", i, 1, **{"blocks per SM": 2**53 + 1}) for i in range(2)])], 0)
def test_forms_equal_decoding_each_event(found: list[bytes], base_ns: int) -> None:
    forms = Forms(least=0, events_per_form=0)
    for chunk in found * 2:
        check_same(decode(chunk, base_ns, forms=forms), one_by_one(chunk, base_ns))


@pytest.mark.parametrize("seed", range(40))
def test_forms_equal_decoding_each_damaged_event(seed: int) -> None:
    """One byte of a real chunk, or a few, are another: at places where they matter and where they do not."""
    rng = random.Random(seed)
    data = bytearray(gzip.decompress((SAMPLES / "late-rank/torch/rank-0.trace.json.gz").read_bytes()))
    data = data[data.index(b'"traceEvents": [') + 16 : data.rindex(b"},") + 1]
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.choice(b'0123456789.,:{}[]"\\-e \n\x00\xff')
    check_same(by_form(bytes(data)), one_by_one(bytes(data)))


@pytest.mark.parametrize("field", [f for f in structs.fields(Args) if "int" in str(f.type)], ids=lambda f: f.name)
def test_forms_read_every_number_of_every_category(field: structs.FieldInfo) -> None:
    """In one chunk, whether it is a column of its own, of another name, or of none. The layout does not matter."""
    key, events = field.encode_name, []
    for category in CATEGORIES:
        phase, name = ("i", "[memory]") if category == "cpu_instant_event" else ("X", "n")
        for value in (0, 1, 2, 6, 12, 5, 99):
            other = {"Collective name": "x"} if key != "Collective name" else {}
            events.append(event(category, name, value, value, **{key: value}, **other) | {"ph": phase})
    expected = one_by_one(text(events))
    layouts: tuple[dict[str, Any], ...] = ({}, {"separators": (",", ":")}, {"indent": 1})
    for layout in layouts:
        check_same(by_form(text(events, **layout)), expected)


def test_objects_in_arguments_are_not_events() -> None:
    """What looks like the boundary of two events is not always one; the pieces between may be events by themselves."""
    inner = kernel("inner", 1, 1)
    outer = [kernel("outer", i, 1, extra=[inner, inner, inner]) for i in range(20)]
    chunk = text(outer, between=", ")
    found = by_form(chunk)
    check_same(found, one_by_one(chunk))
    assert found.batches["kernels"].column("name").to_pylist() == ["outer"] * 20


def test_names_that_never_repeat_are_not_learned() -> None:
    forms = Forms(least=0)
    chunk = text([event("python_function", f"f{i}", i, 1) for i in range(2000)])
    assert forms.build(chunk, len(chunk), 0, Tally()) is None
    assert not forms.known.forms and not forms.known.seen


def test_memory_of_forms_is_bounded() -> None:
    forms = Forms(least=0, most_bytes=10_000)
    for n in range(30):
        events = [event("python_function", f"{'f' * 100}{n}.{i % 10}", i, 1) for i in range(100)]
        check_same(decode(text(events), 0, forms=forms), one_by_one(text(events)))
        assert forms.known.bytes < 20_000
