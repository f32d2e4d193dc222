"""Large ranks that are cut in time: what is made of their pieces is what is made of them whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, kernel, launch, op, write_trace

import analyze
from analyze.errors import InputError
from analyze.query.computed import call_tree, pieces
from analyze.query.engine import Engine

SUMS = ("call_paths_no", "call_work_no", "torch_sums_no")
TABLES = {
    **{t: (f"SELECT * FROM {t}", [t.replace("paths", "tree_sums").replace("work", "tree_sums")]) for t in SUMS},
}
"""Each table that is made of pieces: its rows without numbers that have no meaning, and the blocks that they need."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[pieces.Piece]:
    """The pieces that are made."""
    found: list[pieces.Piece] = []
    cut = pieces.cut

    def counted(*asked: Any) -> dict[int, pieces.Piece]:
        by_batch = cut(*asked)
        found.extend(by_batch.values())
        return by_batch

    monkeypatch.setattr(pieces, "cut", counted)
    return found


@pytest.fixture
def in_batches_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make batches of so many events; a rank with four times as many is large."""

    def make(events: int) -> None:
        monkeypatch.setattr(call_tree, "_BATCH", events)

    return make


def rows(path: Path, table: str) -> tuple[list[Any], list[Any]]:
    """The rows of a table and its columns, made anew."""
    sql, blocks = TABLES[table]
    engine = Engine(analyze.open(path).stores)
    return engine.rows(f"SELECT * FROM ({sql}) ORDER BY ALL", blocks), engine.rows(f"DESCRIBE {sql}")


@pytest.mark.parametrize(("sample", "batch"), [("resnet18-ddp2", 300), ("generate", 100), ("cuda-graph", 3)])
@pytest.mark.parametrize("table", TABLES)
def test_pieces_make_the_same_rows(
    table: str, sample: str, batch: int, made: list[pieces.Piece], in_batches_of: Callable[[int], None]
) -> None:
    """Between steps nothing is open; `cuda-graph` has work without an operator, which is where its launch is."""
    whole = rows(SAMPLES / sample, table)
    assert not made
    in_batches_of(batch)
    assert rows(SAMPLES / sample, table) == whole
    assert len({(p.run_id, p.rank) for p in made}) < len(made) > 2


@pytest.mark.parametrize("table", ["torch_sums_no", "call_work_no"])
def test_pieces_whose_ids_are_not_apart_are_worked_on_whole(
    table: str, tmp_path: Path, made: list[pieces.Piece], in_batches_of: Callable[[int], None]
) -> None:
    # Of the kernels that the second operator's call launched, one has the External id of the first, one that of an
    # operator to come: both operators are in other pieces than the call. And 6 is an operator's in two of them.
    mm: dict[str, Any] = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
    trace = [
        op("aten::mm", 0, 10, 5, **mm), launch(2, 1, 5), kernel("first", 4, 2, correlation=1, **{"External id": 5}),
        op("aten::mm", 20, 10, 6, **mm), launch(22, 2, 6), kernel("before", 24, 2, correlation=2, **{"External id": 5}),
        launch(25, 3, 6), kernel("behind", 27, 2, correlation=3, **{"External id": 7}),
        op("aten::mm", 40, 10, 7, **mm), launch(42, 4, 7), kernel("last", 44, 2, correlation=4, **{"External id": 7}),
        *(op("aten::mm", at, 10, 6 + at, **mm) for at in (60, 80, 100)), op("aten::mm", 120, 10, 6, **mm),
    ]  # fmt: skip
    for given in (trace, [e for e in trace if e["name"] != "before"], trace[:-1]):
        path = write_trace(tmp_path / f"{len(made)}.json", given)
        before = len(made)
        whole = rows(path, table)
        assert len(made) == before
        in_batches_of(1)
        assert rows(path, table) == whole
        assert len(made) > before
        in_batches_of(1000)


def test_a_rank_that_is_never_idle_stays_whole(
    tmp_path: Path, made: list[pieces.Piece], in_batches_of: Callable[[int], None]
) -> None:
    """In an operator around all others, and where CUDA calls are not numbered in the order of time."""
    inner = [op("aten::mm", at, 10, 5 + at) for at in range(0, 100, 20)]
    in_batches_of(1)
    one = write_trace(tmp_path / "one.json", [op("all", 0, 100, 1), *inner])
    assert len(rows(one, "torch_sums_no")[0]) == 2
    two = write_trace(tmp_path / "two.json", [*inner, launch(1, 9, 5), launch(81, 2, 85)])
    rows(two, "torch_sums_no")
    assert not made
    three = write_trace(tmp_path / "three.json", [*inner, launch(1, 2, 5), launch(81, 9, 85)])
    rows(three, "torch_sums_no")
    assert len(made) == 5


def test_pieces_need_no_room_for_the_whole_rank(
    monkeypatch: pytest.MonkeyPatch, in_batches_of: Callable[[int], None]
) -> None:
    """As much memory as a third of the events takes: one sentence for the whole, but the pieces fit."""
    path = SAMPLES / "generate"
    whole = rows(path, "torch_sums_no")
    [(limit,)] = Engine(analyze.open(path).stores).rows("SELECT current_setting('memory_limit')")
    number, unit = limit.split()
    assert unit == "GiB"
    [(events,)] = Engine(analyze.open(path).stores).rows("SELECT count(*) FROM cpu_events", ["cpu_events"])
    monkeypatch.setattr(call_tree, "_SUMMED_BYTES", int(float(number) * 2**30 * 3 / events))
    with pytest.raises(InputError, match="rank 0: out of memory: its"):
        rows(path, "torch_sums_no")
    in_batches_of(10)
    assert rows(path, "torch_sums_no") == whole
