"""Events read + events reported lost = events in the file, whatever the damage."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES
from traces import event, kernel

from analyze.errors import InputError
from analyze.sources.chrome.json_events import CHUNK_BYTES
from analyze.sources.chrome.reader import read
from analyze.sources.interface import FileReport

KERNELS = [json.dumps(kernel(f"k{i}", i, 1)) for i in range(10)]
FIRST, SECOND = ",".join(KERNELS[:5]), ",".join(KERNELS[5:])


def load(
    path: Path, content: str | bytes, chunk_bytes: int = CHUNK_BYTES
) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """Rows by table, and the warning ('' for none)."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    report = FileReport()
    rows: dict[str, list[dict[str, Any]]] = {}
    for table, _, batch in read(path, report, chunk_bytes=chunk_bytes):
        rows.setdefault(table, []).extend(batch.to_pylist())
    assert len(report.warnings) <= 1
    return rows, "".join(report.warnings)


def told(warning: str) -> tuple[int, int, int]:
    """Events kept, lost, and of categories that are not read, as the warning says."""
    kept = int(re.findall(r"(\d+) events kept$", warning)[0])
    lost = sum(map(int, re.findall(r"(\d+) events? could not be read", warning)))
    unread = re.search(r"categories that are not read: ([^;]*)", warning)
    return kept, lost, sum(map(int, re.findall(r"(?:^|, )(\d+) ", unread.group(1)))) if unread else 0


@pytest.mark.parametrize(
    ("text", "kept", "lost", "says"),
    [
        (f'{{"traceEvents":[{FIRST}],{SECOND}]}}', 10, 0, "brackets or other values between its events"),
        (f'{{"traceEvents":[{FIRST},],{SECOND}]}}', 10, 0, "brackets or other values between its events"),
        (f'{{"traceEvents":[{FIRST}]]],{SECOND}],"a":1}}', 10, 0, "brackets or other values between its events"),
        (f'{{"traceEvents":[{FIRST}}},{SECOND}]}}', 10, 0, "brackets or other values between its events"),
        (f'{{"traceEvents":[{FIRST}],"a":1,"traceEvents":[{SECOND}]}}', 10, 0, "2 lists of events"),
        (f'{{"traceEvents":[{FIRST}]}}{{"traceEvents":[{SECOND}]}}', 5, 5, "5 of another trace"),
        (f'{{"traceEvents":[{FIRST}],"a":[]}}\n{{"b":{{}},"traceEvents":[{SECOND}],"c":1}}', 5, 5, "of another trace"),
        (f"[{FIRST}][{SECOND}]", 5, 5, "5 of another trace"),
        # The first trace ends within its sixth event, and another begins: one is malformed, five are the other's.
        (f'{{"traceEvents":[{FIRST},{KERNELS[0][:40]}{{"traceEvents":[{SECOND}]}}', 5, 6, "5 of another trace"),
        (f'{{"traceEvents":[{FIRST}],"other":[{SECOND}]}}', 5, 5, "5 outside the list of events"),
        (f'{{"traceEvents":[{FIRST},{KERNELS[5][:-1]},{KERNELS[6]}]}}', 6, 1, "malformed"),
        (f'{{"traceEvents":[{FIRST},{KERNELS[5][:-1]}]}}', 5, 1, "malformed"),
        (f'{{"traceEvents":[{FIRST},{KERNELS[5][1:]},{KERNELS[6]}]}}', 6, 1, "malformed"),
        (f'{{"traceEvents":[{FIRST},1,"a",null,{KERNELS[6]}]}}', 6, 0, "brackets or other values between"),
    ],
)  # fmt: skip
def test_lost_events_are_counted(tmp_path: Path, text: str, kept: int, lost: int, says: str) -> None:
    rows, warning = load(tmp_path / "t.json", text)
    assert len(rows["kernels"]) == kept
    assert told(warning) == (kept, lost, 0) and says in warning
    assert "truncated" not in warning


def changed(**fields: Any) -> str:
    """The kernel `odd` with fields of its own; None leaves one out."""
    return json.dumps({k: v for k, v in {**kernel("odd", 1, 1), **fields}.items() if v is not None})


NULL = json.dumps({**kernel("odd", 1, 1), "cat": None})


@pytest.mark.parametrize(
    ("odd", "counts", "says", "row"),
    [
        (changed(ph=None), (10, 1, 0), "1 without a phase (ph)", None),
        (changed(ph=5), (10, 1, 0), "1 without a phase (ph)", None),
        (changed(ph="B"), (10, 0, 1), "1 kernel, phase B", None),
        (changed(cat=None), (10, 0, 1), "1 no category", None),
        (NULL, (10, 0, 1), "1 no category", None),
        (changed(cat="mtia_insight"), (10, 0, 1), "1 mtia_insight", None),
        (changed(cat="a\n\x1bb"), (10, 0, 1), "1 a??b;", None),
        (changed(ts=None), (10, 1, 0), "without a time", None),
        (changed(ts="soon"), (10, 1, 0), "without a time", None),
        (changed(dur="abc"), (11, 0, 0), "NULL: 1 dur", {"dur_ns": None, "name": "odd"}),
        (changed(dur=None), (11, 0, 0), "NULL: 1 dur", {"dur_ns": None}),
        (changed(args=[1]), (11, 0, 0), "NULL: 1 args", {"device": 0, "stream": 7}),
        (changed(args={"device": "x", "grid": [1, {}]}), (11, 0, 0), "NULL: 1 device, 1 grid", {"grid_x": None}),
        (changed(args={"device": 2**32 - 2}), (11, 0, 0), "NULL: 1 device", {"device": None}),
        (changed(args={"registers per thread": 10**70}), (11, 0, 0), "NULL: 1 registers", {"registers": None}),
        (changed(args={}, pid=10**69), (11, 0, 0), "NULL: 1 device", {"device": None}),
        (changed(args={"Seq": 10**40, "Collective name": "x"}), (11, 0, 0), "NULL: 1 seq", {"seq": None}),
        # Between two doubles: the nearest, ties to even.
        (changed(args={"blocks per SM": 2**53 + 1}), None, "", {"blocks_per_sm": 2.0**53}),
        (changed(args={"blocks per SM": 10**400}), (11, 0, 0), "NULL: 1 blocks_per_sm", {"blocks_per_sm": None}),
        (changed(args={"blocks per SM": "nan"}), None, "", {"blocks_per_sm": None}),
        (changed(args={"blocks per SM": "inf"}), (11, 0, 0), "NULL: 1 blocks_per_sm", {"blocks_per_sm": None}),
        (changed(name="a\ud800b"), (11, 0, 0), "repaired", {"name": "a\ufffdb"}),
        (changed(name="\U0001f600\\q"), None, "", {"name": "\U0001f600\\q"}),
        (changed(args={"Collective name": "x", "Process Group Ranks": "[\ud800]"}), (11, 0, 0), "repaired",
         {"group_ranks": "[\ufffd]"}),
        # That there is no value is said in many ways, none of which loses anything.
        (changed(args={"device": 2**32 - 1, "registers per thread": "N/A"}), None, "", {"device": None}),
        (changed(ph="M"), None, "", None),
        (changed(ph="s", cat="ac2g"), None, "", None),
    ],
)  # fmt: skip
def test_events_with_odd_fields_are_kept_or_counted(
    tmp_path: Path, odd: str, counts: tuple[int, int, int] | None, says: str, row: dict[str, Any] | None
) -> None:
    rows, warning = load(tmp_path / "t.json", '{"traceEvents":[' + ",".join([*KERNELS, odd]) + "]}")
    assert (told(warning) if warning else None) == counts and says in warning
    assert len(rows["kernels"]) == 10 + (row is not None)
    if row:
        assert rows["kernels"][-1].items() >= row.items()


def test_invalid_utf8_in_a_process_group(tmp_path: Path) -> None:
    odd = kernel("k", 1, 1, **{"Collective name": "x", "Process Group Ranks": "RANKS", "Process Group Name": "NAME"})
    text = json.dumps({"traceEvents": [odd]}).encode().replace(b"RANKS", b"[0\xff]").replace(b"NAME", b"\xfe")
    rows, warning = load(tmp_path / "t.json", text)
    assert [(r["group_ranks"], r["group_name"]) for r in rows["kernels"]] == [("[0\ufffd]", "\ufffd")]
    assert "repaired" in warning


@pytest.mark.parametrize("text", ["[]", "[1, 2]", '[{"a": 1}]', '{"traceEvents": [{"a": 1}]}', '{"traceEvents": [1]}'])
def test_file_without_events_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no event could be read"):
        load(tmp_path / "t.json", text)


def test_categories_of_other_devices_are_counted(tmp_path: Path) -> None:
    calls = [event(c, "launch", 1, 1) for c in ("xpu_runtime", "mtia_runtime", "privateuse1_runtime")]
    drivers = [event(c, "launch", 1, 1) for c in ("xpu_driver", "privateuse1_driver")]
    other = [event(c, "work", 1, 1) for c in ("mtia_insight", "hpu_op", "hpu_op")]
    rows, warning = load(tmp_path / "t.json", json.dumps({"traceEvents": calls + drivers + other}))
    assert [r["api"] for r in rows["cuda_calls"]] == ["runtime"] * 3 + ["driver"] * 2
    assert "not read: 2 hpu_op, 1 mtia_insight; 5 events kept" in warning


SAMPLE = gzip.decompress((SAMPLES / "late-rank/torch/rank-0.trace.json.gz").read_bytes())


@pytest.mark.parametrize("seed", range(60))
def test_every_event_of_a_damaged_trace_is_kept_or_counted(tmp_path: Path, seed: int) -> None:
    """The sample has 495 events; each is kept, or counted as lost, or of a category that the damage invented."""
    events = len(json.loads(SAMPLE)["traceEvents"])
    begin, end = SAMPLE.index(b'"traceEvents": [') + 16, SAMPLE.rindex(b"]")
    choose = random.Random(seed)
    damaged = bytearray(SAMPLE)
    for _ in range(choose.choice((1, 1, 2, 3))):
        at = choose.randrange(begin, end - 10)
        if choose.random() < 0.5:  # where it hurts
            at = min(p for c in b'{}[]",' if (p := damaged.find(c, at)) >= 0)
        new = choose.choice(b'{}[]",:\\ x0\xff')
        damaged[at : at + choose.randrange(2)] = choose.choice((b"", bytes([new])))
    rows, warning = load(tmp_path / "t.json", bytes(damaged), choose.choice((3_000, 20_000, CHUNK_BYTES)))
    # 291 of them are of the tables, the others names, flows and marks (counted in the sample with json.load).
    # The process group that it lists is no event.
    del rows["process_groups"]
    assert sum(told(warning)) == events if warning else sum(map(len, rows.values())) == 291
