"""Every raw format compressed with gzip, and folders with damaged files."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from commands import complaints, run_cli
from support import ROOT, SAMPLES, ask, sql
from traces import kernel, write_run, write_trace

from analyze.errors import InputError
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest
from analyze.ingestion.progress import Progress
from analyze.store.store import Store

NSYS = SAMPLES / "alexnet-dp2" / "nsys" / "node-0.sqlite"
NCU = SAMPLES / "matmuls" / "ncu" / "rank-0.ncu.csv"
NVPROF = ROOT / "tests" / "data" / "nvprof" / "resnet18_k80_conv_tabs.log"


def compressed(source: Path, target: Path) -> Path:
    """A gzip file of what a file holds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(source.read_bytes()))
    return target


@pytest.mark.parametrize(
    ("source", "statement"),
    [
        (NSYS, "SELECT name, count(*), sum(dur_ns) FROM kernels GROUP BY 1"),
        (NCU, "SELECT metric, count(*), sum(value) FROM ncu_metrics GROUP BY 1"),
        (NVPROF, "SELECT kernel, metric, sum(avg) FROM metric_summary GROUP BY 1, 2"),
    ],
    ids=["nsys", "ncu", "nvprof"],
)
def test_compressed_file_has_the_rows_of_the_plain_one(tmp_path: Path, source: Path, statement: str) -> None:
    plain = tmp_path / "plain" / source.name
    plain.parent.mkdir()
    shutil.copy(source, plain)
    file = compressed(source, tmp_path / "compressed" / f"{source.name}.gz")
    expected = sql(plain, f"{statement} ORDER BY ALL")
    assert expected and sql(file, f"{statement} ORDER BY ALL") == expected
    # Found in a folder by its name and beginning, too; a run is called as if it were not compressed.
    [run] = discover([file.parent])
    assert run.run_id.rsplit("-", 1)[0] == discover([plain])[0].run_id.rsplit("-", 1)[0]


def test_run_folder_with_compressed_files(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(SAMPLES / "resnet18-1gpu", folder)
    steps = folder / "torch" / "rank-0.step_metrics.csv"
    compressed(steps, steps.with_name(f"{steps.name}.gz"))
    steps.unlink()
    statement = "SELECT step, step_s, images FROM step_metrics ORDER BY step"
    assert sql(folder, statement) == sql(SAMPLES / "resnet18-1gpu", statement) != []


def test_truncated_compressed_file_is_named(tmp_path: Path) -> None:
    file = compressed(SAMPLES / "matmuls" / "ncu" / "rank-0.ncu.csv", tmp_path / "rank-0.ncu.csv.gz")
    file.write_bytes(file.read_bytes()[:-2000])
    result = run_cli("query", "runs", file, "-f", "csv")
    assert result.returncode == 0 and "rank-0.ncu.csv.gz: reading stopped early (the gzip stream is truncated)" in (
        result.stderr
    )
    bad = tmp_path / "x.sqlite.gz"
    bad.write_bytes(gzip.compress(b"SQLite format 3\0" + b"x" * 500))
    [said] = complaints(run_cli("query", "runs", bad))
    assert str(bad) in said and "tracequarry-" not in said


def broken(path: Path) -> Path:
    """An ncu log that begins like one and has no launch: that shows only when it is read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('==PROF== Connected to process 1\n"ID","Process ID","Kernel Name"\n')
    return path


def test_a_bad_file_among_good_ones_is_a_warning(tmp_path: Path) -> None:
    write_trace(tmp_path / "a.json", [kernel("good", 0, 5)])
    bad = broken(tmp_path / "b.log")
    (tmp_path / "c.json").write_text("{")
    for jobs in ("1", "2"):
        result = run_cli("ingest", tmp_path / ".", "--store", tmp_path / f"s{jobs}" / "store", "-j", jobs)
        assert result.returncode == 0 and "1 run(s) ingested" in result.stderr
        assert all(f"warning: {path}: " in result.stderr for path in (bad, tmp_path / "c.json")), result.stderr
        assert result.stderr.count("; left out") == 2
        shutil.rmtree(tmp_path / f"s{jobs}")
    assert [r["name"] for r in ask(tmp_path, "kernel-share")] == ["good"]
    # A file that is named itself is an error, and so is a folder in which nothing can be read.
    for paths in ([bad], [tmp_path / "a.json", bad], [broken(tmp_path / "only" / "d.log").parent]):
        failed = run_cli("query", "kernel-share", *paths)
        assert failed.returncode == 2 and len(complaints(failed)) == 1 and str(paths[-1]) in failed.stderr


def test_a_bad_rank_of_a_run_is_a_warning_of_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_trace(folder / "r0.json", [kernel("good", 0, 5)])
    (folder / "r1.json").write_text('{"traceEvents": [nonsense')
    write_run(folder, [(f"r{rank}.json", "chrome_trace", rank) for rank in (0, 1)])
    [row] = ask(folder, "runs")
    assert row["ranks"] == 1 and "r1.json" in row["warnings"] and "left out" in row["warnings"]


def test_unreadable_run_is_no_longer_answered(tmp_path: Path) -> None:
    """A cached run whose files were read before and cannot be now is gone, not shown as it was."""
    write_trace(tmp_path / "a" / "t.json", [kernel("stays", 0, 5)])
    folder = tmp_path / "b"
    write_trace(folder / "t.json", [kernel("goes", 0, 5)])
    write_run(folder, [("t.json", "chrome_trace", 0)])
    assert len(ask(tmp_path, "kernel-share")) == 2
    (folder / "t.json").write_text('{"traceEvents": [nonsense')
    assert [r["name"] for r in ask(tmp_path, "kernel-share")] == ["stays"]


class Told(Progress):
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.total = 0
        self.steps: list[int] = []

    def start(self, total_bytes: int) -> None:
        self.total = total_bytes

    def advance(self, done_bytes: int, name: str) -> None:
        self.steps.append(done_bytes)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_progress_advances_within_one_file(tmp_path: Path, suffix: str) -> None:
    """By bytes of the file on the disk, also where it is compressed."""
    events = [kernel(f"k{i % 997}", i, 1, note="x" * 5_000) for i in range(10_000)]
    path = write_trace(tmp_path / "t.json", events)
    if suffix == ".json.gz":
        path = tmp_path / "p" / "t.json.gz"
        path.parent.mkdir()
        path.write_bytes(gzip.compress((tmp_path / "t.json").read_bytes(), 0))
    told = Told()
    ingest(discover([path]), Store(tmp_path / "store"), jobs=2, progress=told)
    assert sum(told.steps) == told.total == path.stat().st_size > 48 << 20
    assert len([s for s in told.steps if s]) >= 3 and max(told.steps) < 0.8 * told.total


def test_discovery_error_names_the_compressed_file(tmp_path: Path) -> None:
    bad = tmp_path / "x.sqlite.gz"
    bad.write_bytes(gzip.compress(b"no database"))
    with pytest.raises(InputError, match=str(bad)):
        discover([bad])
