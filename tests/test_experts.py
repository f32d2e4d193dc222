"""Tokens per expert in small traces, from the matrix products between all_to_alls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ROOT, ask
from test_communication import collective
from traces import event, write_ranks

_WIDTH, _HIDDEN = 8, 32


def exchange(number: int, at: float, sent: list[int], received: list[int]) -> list[dict[str, Any]]:
    """An all_to_all of rows of 8 floats, asked for at `at`."""
    asked = event("cpu_op", "record_param_comms", at, 1, **{"External id": number, "Input Dims": [[sum(sent), _WIDTH]]})
    splits = {"In split size": str(sent), "Out split size": str(received), "External id": number}
    name = {"Collective name": "all_to_allv"}
    kernel = collective("all_to_all", at + 2, 1, _WIDTH * sum(sent), _WIDTH * sum(received), **splits, **name)
    return [asked, kernel]


def product(name: str, at: float, *dims: list[int]) -> dict[str, Any]:
    return event("cpu_op", name, at, 0.5, **{"Input Dims": list(dims)})


def linear(at: float, rows: int, inner: int = _WIDTH, outer: int = _HIDDEN) -> list[dict[str, Any]]:
    """A linear layer and the product that it calls."""
    return [product("aten::linear", at, [rows, inner], [outer, inner], [outer]),
            product("aten::addmm", at + 0.1, [outer], [rows, inner], [inner, outer])]  # fmt: skip


def loads(path: Path) -> list[tuple[Any, ...]]:
    rows = ask(path, "moe-balance", params={"per": "expert"})
    return [tuple(r[n] for n in ("destination", "expert", "experts", "calls", "rows", "load_ratio")) for r in rows]


def test_each_expert_has_a_layer_of_its_own(tmp_path: Path) -> None:
    """Two layers, each with a dispatch and the way back. Rank 0 receives 3 + 4 rows, its two experts get 5 and 2 of
    them, then 1 and 6; rank 1 receives 1 + 4, and 4 and 1, then 2 and 3. Then a layer for all, of as many rows as came
    back. 6, 8, 6 and 4 tokens; 6 is the mean.
    """

    def rank(own: int, first: tuple[int, int], then: tuple[int, int]) -> list[dict[str, Any]]:
        sent, received = ([3, 1], [3, 4]) if own == 0 else ([4, 4], [1, 4])
        events = []
        for at, tokens in ((0.0, first), (50.0, then)):
            events += exchange(int(at) + 1, at, sent, received)
            for n, rows in enumerate(tokens):
                events += linear(at + 5 + 5 * n, rows) + linear(at + 7 + 5 * n, rows, _HIDDEN, _WIDTH)
            events += exchange(int(at) + 2, at + 20, received, sent) + linear(at + 30, sum(sent))
        return events

    path = write_ranks(tmp_path, rank(0, (5, 2), (1, 6)), rank(1, (4, 1), (2, 3)))
    assert loads(path) == [
        (0, 0, 2, 2, 6, 1), (0, 1, 2, 2, 8, pytest.approx(8 / 6)),
        (1, 0, 2, 2, 6, 1), (1, 1, 2, 2, 4, pytest.approx(4 / 6)),
    ]  # fmt: skip


def test_grouped_products_tell_how_many_experts(tmp_path: Path) -> None:
    """Rank 0: 7 rows in a grouped product of 4 experts, whose offsets are on the GPU. Rank 1: padded, 2 of 3 rows each;
    of its tokens the ratio to the mean is not known while rank 0's are not.
    """
    grouped = product("aten::_scaled_grouped_mm_v2", 5, [7, _WIDTH], [4, _WIDTH, _HIDDEN], [4])
    padded = product("aten::bmm", 5, [2, 3, _WIDTH], [2, _WIDTH, _HIDDEN])
    path = write_ranks(tmp_path, [*exchange(1, 0, [3, 2], [3, 4]), grouped], [*exchange(1, 0, [4, 4], [2, 4]), padded])
    assert loads(path) == [(0, None, 4, 1, None, None), (1, 0, 2, 1, 3, None), (1, 1, 2, 1, 3, None)]


def test_experts_without_shapes_are_unknown(tmp_path: Path) -> None:
    """Of rank 0 no product has as many rows as came; of rank 1 a second dispatch reaches one expert less."""
    first = [*exchange(1, 0, [3, 1], [3, 4]), *linear(5, 6)]
    second = [*exchange(1, 0, [4, 4], [1, 4]), *linear(5, 3), *linear(8, 2)]
    second += [*exchange(2, 40, [4, 4], [1, 4]), *linear(45, 5)]
    assert loads(write_ranks(tmp_path, first, second)) == [
        (0, None, None, 1, None, None), (1, None, None, 2, None, None),
    ]  # fmt: skip


def test_a_recording_of_grouped_products() -> None:
    """Two H200s, three steps: ranks 0 and 1 receive 300 + 600 and 724 + 424 rows for a grouped product of 4 experts."""
    path = ROOT / "tests" / "data" / "experts"
    assert loads(path) == [(0, None, 4, 3, None, None), (1, None, 4, 3, None, None)]
    rows = ask(path, "moe-balance")
    assert [(r["source"], r["destination"], r["rows"]) for r in rows] == [
        (0, 0, 900), (0, 1, 3 * 724), (1, 0, 1800), (1, 1, 3 * 424),
    ]  # fmt: skip
