"""Damaged traces: whole events are kept, losses are one line, other files are one sentence."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from commands import run_cli
from hypothesis import given, settings
from hypothesis import strategies as st
from support import sql
from traces import event, kernel, write_trace

import analyze
from analyze.errors import InputError
from analyze.sources.chrome.json_events import TraceFile
from analyze.sources.chrome.json_recovery import Scanner
from analyze.sources.chrome.reader import read
from analyze.sources.interface import FileReport

COUNT = "SELECT count(*) AS n, sum(dur_ns)::BIGINT AS ns FROM kernels"


def trace(n: int) -> str:
    return json.dumps({"traceEvents": [kernel(f"k{i}", i, 1) for i in range(n)], "traceName": "t.json"}, indent=1)


def check(path: Path, n: int, *warnings: str) -> None:
    assert sql(path, COUNT) == [{"n": n, "ns": n * 1000}]
    [found] = sql(path, "SELECT warnings FROM runs")
    if not warnings:
        assert found["warnings"] is None
    for warning in warnings:
        assert warning in found["warnings"]
        assert len(found["warnings"].splitlines()) == 1


def test_arguments_without_a_column_lose_no_event(tmp_path: Path) -> None:
    """ROCm's calls write the handle of a stream, Inductor's operators the grid of the kernel: names of other values."""
    call = event("cuda_runtime", "hipMemcpyWithStream", 0, 1, stream="0x0", correlation=7)
    triton = event("cpu_op", "triton_poi_fused_add_0", 0, 1, grid="grid(100,)")
    path = write_trace(tmp_path / "t.json", [call, triton, kernel("k", 0, 1)])
    check(path, 1)
    assert [r["correlation_id"] for r in sql(path, "SELECT correlation_id FROM cuda_calls")] == [7]
    check(write_trace(tmp_path / "u.json", [kernel("k", 0, 1) | {"args": {"stream": "blue"}}]), 1, "NULL: 1 stream")


def test_truncated_trace_keeps_whole_events(tmp_path: Path) -> None:
    whole = trace(50)
    for i, cut in enumerate((whole.index('"k30"'), whole.index('"k30"') + 3, whole.index('"k30"') - 20)):
        path = tmp_path / f"cut{i}" / "t.json"
        path.parent.mkdir()
        path.write_text(whole[:cut])
        check(path, 30, "truncated", "30 events kept")


def test_ingest_keeps_events_before_a_truncated_gzip_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    letters = random.Random(0)
    events = [kernel("".join(letters.choices("abcdefghijklmnop", k=60)), i, 1) for i in range(4000)]
    data = gzip.compress(json.dumps({"traceEvents": events}).encode())
    path.write_bytes(data[: len(data) // 2])
    [row] = sql(path, COUNT)
    [run] = sql(path, "SELECT warnings FROM runs")
    assert 1000 < row["n"] < 4000
    assert "reading stopped early" in run["warnings"] and f"{row['n']} events kept" in run["warnings"]


def test_trailing_comma_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + json.dumps(kernel("a", 0, 1)) + "," + json.dumps(kernel("b", 1, 1)) + ",\n]}")
    check(path, 2)


def test_trailing_comma_inside_an_event_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1, "args": {"device": 0,},}]}'
    )
    check(path, 1, "repaired")


@pytest.mark.parametrize("value", ["NaN", "N/A", "-Infinity", "nan"])
def test_nan_is_null(tmp_path: Path, value: str) -> None:
    path = tmp_path / "t.json"
    args = f'{{"est. achieved occupancy %":{value},"device":0}}'
    odd = f'{{"ph":"X","cat":"kernel","name":"x: NaN, N/A]","pid":0,"tid":7,"ts":1,"dur":1,"args":{args}}}'
    path.write_text('{"traceEvents":[' + odd + "," + json.dumps(kernel("b", 2, 1)) + "]}")
    check(path, 2, "repaired")
    assert sql(path, "SELECT name, occupancy_pct FROM kernels ORDER BY start_ns")[0] == {
        "name": "x: NaN, N/A]",
        "occupancy_pct": None,
    }


def test_invalid_utf8_and_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    body = b'{"ph":"X","cat":"kernel","name":"bad\xff\x01\nname","pid":0,"tid":7,"ts":1,"dur":1,"args":{"device":0}}'
    path.write_bytes(b'{"traceEvents":[' + body + b"," + json.dumps(kernel("b", 2, 1)).encode() + b"]}")
    check(path, 2, "repaired")
    assert sql(path, "SELECT name FROM kernels ORDER BY start_ns")[0] == {"name": "bad\ufffd\x01\nname"}


def test_broken_event_loses_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    # An unescaped quote turns everything behind it inside out, until the events are found again.
    broken = '{"ph":"X","cat":"kernel","name":"a "quoted" name","pid":0,"tid":7,"ts":1,"dur":1,"args":{}}'
    good = [json.dumps(kernel(f"k{i}", i, 1)) for i in range(5)]
    path.write_text('{"traceEvents":[' + ",".join([*good[:2], broken, *good[2:]]) + "]}")
    check(path, 5, "1 event could not be read")


def test_events_without_a_time_are_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    odd = '{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":NaN,"dur":1,"args":{}}'
    path.write_text('{"traceEvents":[' + odd + "," + json.dumps(kernel("b", 2, 1)) + "]}")
    check(path, 1, "1 event could not be read")


def test_negative_duration_is_null(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("a", 1, 1), kernel("b", 5, -2), kernel("c", 9, 3)])
    with analyze.open(path) as traces:
        assert any("cannot hold are NULL: 1 dur" in warning for warning in traces.warnings)
        lengths = traces.sql("SELECT dur_ns FROM kernels ORDER BY name").arrow().column("dur_ns").to_pylist()
        assert lengths == [1000, None, 3000]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"hello", "it begins with 'hello'"),
        (b'{"some": "json"}', 'no "traceEvents" list'),
        (b"[1, 2, 3]", "no event could be read"),
        (b'{"traceEvents": [1, 2]}', "no event could be read"),
        (b"\x1f\x8b\x08\x00garbage", "the file is empty"),
    ],
)
def test_file_that_is_not_a_trace_is_rejected(tmp_path: Path, content: bytes, says: str) -> None:
    store = tmp_path / "store"
    good = tmp_path / "good.json"
    good.write_text(trace(3))
    assert run_cli("ingest", good, "--store", store).returncode == 0
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*.parquet")}
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    result = run_cli("ingest", path, "--store", store)
    assert result.returncode == 2
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert "bad.json: not a Chrome trace" in result.stderr and says in result.stderr
    assert {p: p.stat().st_mtime_ns for p in store.rglob("*.parquet")} == before


def test_empty_trace_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": []}')
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": "t.json: it has no events; 0 events kept"}]


nested = st.recursive(
    st.one_of(st.integers(0, 9), st.text(alphabet='{}[],:"\\ aé', max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='{},"n', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=75, deadline=None)
@given(
    values=st.lists(nested, min_size=1, max_size=12),
    chunk=st.integers(1, 200),
    indent=st.sampled_from([None, 1]),
)
def test_chunk_boundaries_lose_no_event(
    tmp_path_factory: pytest.TempPathFactory, values: list, chunk: int, indent: int | None
) -> None:
    """Whatever stands in args (strings with brackets, lists of objects), every event comes out once and whole."""
    events = [kernel(f"k{i}", i, i + 1, extra=v, list=[{"a": 1}, {"b": v}]) for i, v in enumerate(values)]
    path = tmp_path_factory.mktemp("cut") / "t.json"
    path.write_text(
        json.dumps(
            {"x": [{"traceEvents": [1]}], "traceEvents": events, "y": [{}, {}]}, indent=indent, ensure_ascii=False
        )
    )

    compressed = path.with_suffix(".json.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, compressed):
        cut = list(TraceFile(file, chunk_bytes=chunk).chunks())
        scanner = Scanner(in_object=True)
        found = [e for c in cut for e in scanner.feed(c)] + scanner.feed(b"", at_end=True)
        assert [json.loads(e) for e in found] == events
        assert scanner.ended and not scanner.lost and not scanner.stray
        assert json.loads(b"{" + scanner.trailer.lstrip(b", ")) == {"y": [{}, {}]}

    report = FileReport()
    batches = [batch for _, _, batch in read(path, report, chunk_bytes=chunk)]
    names = [name for batch in batches for name in batch.column("name").to_pylist()]
    assert names == [e["name"] for e in events]
    assert report.warnings == []


def test_chunks_have_the_given_size(tmp_path: Path) -> None:
    """Memory of reading is that of a few chunks."""
    path = tmp_path / "t.json"
    path.write_text(trace(5000))
    compressed = path.with_suffix(".json.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    size = 1 << 12
    event = max(len(json.dumps(kernel("k4999", 4999, 1))), 200)
    for file in (path, compressed):
        lengths = [len(c) for c in TraceFile(file, chunk_bytes=size).chunks()]
        assert len(lengths) > 32
        assert all(abs(length - size) <= event for length in lengths[1:-2]), file  # the last two end with the events


def test_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        sql(tmp_path / "nothing.json", COUNT)
