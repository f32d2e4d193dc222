"""A short run of the generator of wrong timelines (tests/fuzz/timelines.py)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest
from analyze.store.store import Store
from tests.fuzz import timelines

INPUTS = 40


def read(made: timelines.Timeline, folder: Path) -> list[str]:
    """Laws that reading a timeline breaks."""
    path = folder / "t.json"
    path.write_text(made.text())
    result = ingest(discover([path]), Store(folder / "store"), jobs=1)
    kept = [
        (row["start_ns"], row["dur_ns"])
        for table in ("kernels", "memcpys", "memsets")
        for file in (folder / "store" / table).rglob("*.parquet")
        for row in pq.ParquetFile(file).read(["start_ns", "dur_ns"]).to_pylist()
    ]
    return timelines.broken_laws(made, kept, result.lost, " ".join(result.warnings))


def test_false_work_is_in_no_sum_and_valid_work_in_all(tmp_path: Path) -> None:
    reasons: Counter[str] = Counter()
    for number in range(INPUTS):
        made = timelines.make(f"20/{number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        assert read(made, folder) == [], f"timelines.make('20/{number}')"
        reasons["false"] += bool(made.false)
        reasons["right"] += not made.false
    assert reasons["false"] > INPUTS / 2 and reasons["right"] > INPUTS / 10


def test_timeline_checks_can_fail() -> None:
    made = next(m for n in range(100) if (m := timelines.make(str(n))).false)
    right = timelines.read_times(made)
    lost = len(made.false) + len(made.false_cpu)
    said = f"{lost} of 9 pieces of GPU work"
    assert timelines.broken_laws(made, right, lost, said) == []
    assert timelines.broken_laws(made, right[1:], lost, said) != []
    assert timelines.broken_laws(made, [*right, (1, 1)], lost, said) != []
    assert timelines.broken_laws(made, right, lost - 1, said) != []
    assert timelines.broken_laws(made, right, lost, "") != []
