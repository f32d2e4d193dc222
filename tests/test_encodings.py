"""Byte order marks and UTF-16 in every text format: found in a folder, and read to the same rows."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from support import ROOT, SAMPLES, sql
from traces import kernel, write_trace

from analyze.errors import InputError
from analyze.ingestion.discover import discover
from analyze.sources.collector_csv import read as read_steps
from analyze.sources.interface import FileReport

ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-16-be-sig"]
NCU = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Section Name","Metric Name",'
    '"Metric Unit","Metric Value"\n"0","5","app","h","k","1","7","s","gpu__time_duration.sum","ns","117,344"\n'
    '"0","5","app","h","k","1","7","s","dram__bytes.sum","byte","27,595,520"\n'
)


def encoded(text: str, encoding: str) -> bytes:
    """Text in an encoding; utf-16-be-sig is big-endian with a byte order mark."""
    return ("\ufeff" + text).encode("utf-16-be") if encoding == "utf-16-be-sig" else text.encode(encoding)


def sources(folder: Path) -> dict[str, tuple[str, str]]:
    """Text and a query of each format."""
    trace = write_trace(folder / "plain.json", [kernel("k\u00e9", 10, 5), kernel("k", 20, 7)])
    log = ROOT / "tests" / "data" / "nvprof" / "resnet18_k80_mem.log"
    return {
        "ncu.csv": (NCU, "SELECT metric, value FROM ncu_metrics"),
        "nvprof.log": (log.read_text("utf-8"), "SELECT name, calls, total_ns FROM api_summary"),
        "trace.json": (trace.read_text("utf-8"), "SELECT name, start_ns, dur_ns FROM kernels"),
    }


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["ncu.csv", "nvprof.log", "trace.json"])
def test_rows_do_not_depend_on_the_encoding(tmp_path: Path, name: str, encoding: str) -> None:
    text, statement = sources(tmp_path)[name]
    folders = [tmp_path / kind for kind in ("expected", "plain", "packed")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / name).write_bytes(text.encode())
    (folders[1] / name).write_bytes(encoded(text, encoding))
    (folders[2] / f"{name}.gz").write_bytes(gzip.compress(encoded(text, encoding)))
    expected = sql(folders[0] / name, f"{statement} ORDER BY ALL")
    assert expected
    for path in (folders[1] / name, folders[1], folders[2]):
        assert sql(path, f"{statement} ORDER BY ALL") == expected


def test_powershell_output_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_bytes(("\ufeff" + NCU.replace("\n", "\r\n")).encode("utf-16-le"))
    assert sql(tmp_path, "SELECT value FROM ncu_metrics ORDER BY 1") == [{"value": 117344.0}, {"value": 27595520.0}]


def test_rank_of_a_utf16_trace_is_read(tmp_path: Path) -> None:
    for rank in range(2):
        trace = write_trace(
            tmp_path / f"r{rank}.json", [kernel("k", 10, 5)], distributedInfo={"rank": rank, "world_size": 2}
        )
        trace.write_bytes(encoded(trace.read_text(), "utf-16"))
    assert sql(tmp_path, "SELECT rank FROM kernels ORDER BY 1") == [{"rank": 0}, {"rank": 1}]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_step_metrics(tmp_path: Path, encoding: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(SAMPLES / "resnet18-1gpu", folder)
    steps = folder / "torch" / "rank-0.step_metrics.csv"
    steps.write_bytes(encoded(steps.read_text(), encoding))
    statement = "SELECT step, step_s FROM step_metrics ORDER BY step"
    assert sql(folder, statement) == sql(SAMPLES / "resnet18-1gpu", statement) != []


def test_step_metrics_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("step,step_s\n0,0.5\n", encoding="utf-8-sig")
    assert [b.to_pylist()[0]["step_s"] for _, _, b in read_steps(path, FileReport())] == [0.5]


def test_byte_order_mark_inside_a_log(tmp_path: Path) -> None:
    """As `cat` or PowerShell's `>>` leave it."""
    (tmp_path / "log.txt").write_bytes(b"epoch 1\n" + NCU.encode("utf-8-sig"))
    assert len(sql(tmp_path, "SELECT * FROM ncu_metrics")) == 2


def test_table_after_an_unterminated_line_is_found(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("step 3 of 9 " + NCU)
    (tmp_path / "old.txt").write_bytes(b"hello\r" + NCU.replace("\n", "\r").encode())
    assert len(discover([tmp_path])) == 2
    # A log with a table is read though it also says where a report went; one without is nobody's.
    (tmp_path / "report.log").write_text("==PROF== Connected\n" + NCU + "==PROF== Report: x.ncu-rep\n")
    (tmp_path / "nobody.log").write_text("==PROF== Connected\n==PROF== Report: x.ncu-rep\n")
    assert len(discover([tmp_path])) == 3


def test_messages_name_the_given_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes("\ufeffhello".encode("utf-16-le"))
    with pytest.raises(InputError, match="not a Chrome trace") as e:
        discover([path])
    assert str(e.value).startswith(f"{path}: ")
