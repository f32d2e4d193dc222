"""The collector's step metrics: whole and damaged files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES

from analyze.errors import InputError
from analyze.sources.collector_csv import read
from analyze.sources.interface import FileReport
from schemas.phases import PHASES

HEADER = "rank,step,warmup,data_s,step_s,images,loss"
ROWS = ["0,0,true,0.01,0.5,16,6.9", "0,1,false,0.02,0.4,16,6.8", "0,2,false,,0.3,16,6.7"]


def read_rows(path: Path, data: bytes) -> tuple[list[dict[str, Any]], FileReport]:
    path.write_bytes(data)
    report = FileReport()
    return [r for _, _, batch in read(path, report) for r in batch.to_pylist()], report


def lines(*rows: str, end: str = "\n") -> bytes:
    return "".join(r + end for r in (HEADER, *rows)).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
def test_whole_rows_are_read(tmp_path: Path, end: str) -> None:
    found, report = read_rows(tmp_path / "s.csv", lines(*ROWS, end=end))
    assert [(r["step"], r["warmup"], r["data_s"], r["loss"]) for r in found] == [
        (0, True, 0.01, 6.9), (1, False, 0.02, 6.8), (2, False, None, 6.7),
    ]  # fmt: skip
    assert not report.warnings and report.lost == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"0,99999999999,false,0.1,0.2,16,6.5",
        b"0,1,false,0.1,0.2,99999999999999999999,6.5",
        "0,²,false,0.1,0.2,16,6.5".encode(),
        b"0,1,maybe,0.1,0.2,16,6.5",
        b"0,1,false,nan,0.2,16,6.5",
        b"0,1,false,0.1,1e400,16,6.5",
        b"0,1,false,-0.1,0.2,16,6.5",
        b"0,1,false,0.1,0.2,16",
        b"0,1,false,0.1,0.2,16,6.5,7",
        b"0,1,false,0.\xff1,0.2,16,6.5",
        b"0,,false,0.1,0.2,16,6.5",
        b"0,1,false,0.1,0.2,16," + b"x" * 200_000,
        b'0,1,false,"0.1,0.2,16,6.5',
    ],
)
def test_unreadable_row_is_counted_and_loses_no_other(tmp_path: Path, bad: bytes) -> None:
    found, report = read_rows(tmp_path / "s.csv", lines(*ROWS) + bad + b"\n" + ROWS[0].encode() + b"\n")
    assert len(found) == 4 and report.lost == 1
    assert len(report.warnings) == 1 and report.warnings[0].startswith("s.csv: line 5 is left out: ")


def test_number_cut_off_by_the_end_of_the_file_is_null(tmp_path: Path) -> None:
    found, report = read_rows(tmp_path / "s.csv", lines(*ROWS)[:-2])
    assert len(found) == 2 and report.lost == 1


def test_infinite_loss_is_kept(tmp_path: Path) -> None:
    found, _ = read_rows(tmp_path / "s.csv", lines("0,0,false,0.1,0.2,16,nan"))
    assert math.isnan(found[0]["loss"])


@pytest.mark.parametrize("data", [b"", b"a,b\n1,2\n", b"step,step\n1,2\n", b"data_s\n1\n", b"\x00\n"])
def test_other_header_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match="not a CSV of collect"):
        read_rows(tmp_path / "s.csv", data)


def test_recorded_phases_are_in_their_order() -> None:
    recorded = sorted(SAMPLES.rglob("*.step_metrics.csv"))
    assert recorded
    for path in recorded:
        header = path.read_text().splitlines()[0].split(",")
        timed = [c.removesuffix("_s") for c in header[3 : header.index("step_s")] if c != "undisturbed"]
        # A program of one's own tells only its steps.
        own_program = header[3:4] == ["undisturbed"]
        assert timed == ([] if own_program else list(PHASES)), path
