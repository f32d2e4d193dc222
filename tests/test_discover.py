"""Which rank and which run a raw file belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import kernel, sql, write_trace

from analyze.discover import assign_ranks, discover
from analyze.errors import InputError


@pytest.mark.parametrize(
    ("names", "told", "ranks"),
    [
        (["a.json", "b.json"], [1, 0], [1, 0]),
        (["rank0.json", "rank1.json", "rank10.json"], [None] * 3, [0, 1, 10]),
        (["trace_rank-3.json.gz", "trace_rank-2.json.gz"], [None] * 2, [3, 2]),
        (["r0_s5.json", "r1_s5.json"], [None] * 2, [0, 1]),
        (["trace_0.json", "trace_1.json", "trace_7.json"], [None] * 3, [0, 1, 7]),
        # A worker name and a time: two numbers differ, neither is a rank, so order decides.
        (["host_71.1690000001.pt.trace.json", "host_72.1690000002.pt.trace.json"], [None] * 2, [0, 1]),
        # What the file says goes before its name; the rest gets what is free.
        (["rank0.json", "rank1.json", "x.json"], [1, None, None], [1, 0, 2]),
        (["x.json"], [None], [0]),
    ],
)
def test_ranks(names: list[str], told: list[int | None], ranks: list[int]) -> None:
    assert assign_ranks(names, told) == ranks


def test_a_folder_of_ranks_is_one_run(tmp_path: Path) -> None:
    for rank in range(3):
        write_trace(tmp_path / "job" / f"t{rank}.json", [kernel(f"k{rank}", 0, 1)], distributedInfo={"rank": 2 - rank})
    (tmp_path / "job" / "notes.json").write_text('{"not": "a trace"}')
    [run] = discover([tmp_path])
    assert [f.rank for f in run.files] == [2, 1, 0]
    assert sql(tmp_path, "SELECT rank, name FROM kernels ORDER BY rank") == [
        {"rank": 0, "name": "k2"},
        {"rank": 1, "name": "k1"},
        {"rank": 2, "name": "k0"},
    ]
    [row] = sql(tmp_path, "SELECT ranks, warnings FROM runs")
    assert row["ranks"] == 3 and "notes.json: not a Chrome trace" in row["warnings"]


def test_two_files_of_one_rank_are_two_runs(tmp_path: Path) -> None:
    for i in range(2):
        write_trace(tmp_path / f"step{i}.json", [kernel("k", i, 1)], distributedInfo={"rank": 0})
    runs = discover([tmp_path])
    assert len(runs) == 2 and "say they are rank 0" in runs[0].warnings[0]


def test_the_same_file_is_the_same_run_wherever_it_lies(tmp_path: Path) -> None:
    a = write_trace(tmp_path / "a" / "t.json", [kernel("k", 0, 1)])
    b = write_trace(tmp_path / "b" / "t.json", [kernel("k", 0, 1)])
    c = write_trace(tmp_path / "c" / "t.json", [kernel("k", 0, 2)])
    ids = [discover([p])[0].run_id for p in (a, b, c)]
    assert ids[0] == ids[1] != ids[2]


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no run folder and no file"):
        discover([tmp_path / "empty"])
    (tmp_path / "x.docx").write_bytes(b"PK")
    with pytest.raises(InputError, match="not a file that any source reads"):
        discover([tmp_path / "x.docx"])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not a run manifest"):
        discover([tmp_path])
    (tmp_path / "run.json").write_text('{"version": 99, "run_id": "x", "start": "", "command": []}')
    with pytest.raises(InputError, match="version 99 is newer"):
        discover([tmp_path])
