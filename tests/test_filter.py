"""`--filter`: rows of a result for which an expression over its columns holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import complaints, run_cli
from traces import kernel, write_trace

import analyze
from analyze.errors import InputError


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels of 1.5 + 0.5, 0.7 and 3 ms."""
    events = [
        kernel("ncclAllReduce", 0, 1500),
        kernel("ncclAllReduce", 2000, 500),
        kernel("ncclBroadcast", 3000, 700),
        kernel("gemm", 4000, 3000),
    ]
    return write_trace(tmp_path_factory.mktemp("filter") / "t.json", events)


def test_rows_that_match_the_filter(trace: Path) -> None:
    asked = ["query", "kernel-share", trace, "--select", "name,calls,total_ns", "--format", "json"]
    found = run_cli(*asked, "--filter", "name LIKE '%nccl%' AND total_ms > 1")
    assert json.loads(found.stdout) == [{"name": "ncclAllReduce", "calls": 2, "total_ns": 2_000_000}]
    with analyze.open(trace) as traces:
        assert traces.query("kernel-share", select="name", filter="total_us >= 700").rows() == [
            ("gemm",), ("ncclAllReduce",), ("ncclBroadcast",)
        ]  # fmt: skip
        [row] = traces.queries.kernel_share(filter="kernel_time_pct > 50").dicts()
        assert row["name"] == "gemm" and row == traces.query("kernel-share", limit=1).dicts()[0]


def test_filter_comes_before_limit_and_select_and_keeps_the_order(trace: Path) -> None:
    with analyze.open(trace) as traces:
        options = {"sort": "total_ns", "filter": "calls = 1", "select": ["total_ns", "name"]}
        assert traces.query("kernel-share", **options).rows() == [(700_000, "ncclBroadcast"), (3_000_000, "gemm")]
        assert traces.query("kernel-share", **options, limit=1).rows() == [(700_000, "ncclBroadcast")]
        assert traces.query("kernel-share", **options).rows(1) == [(700_000, "ncclBroadcast")]


def test_filtered_values_have_the_types_of_unfiltered_ones(trace: Path) -> None:
    with analyze.open(trace) as traces:
        for query in ("kernel-share", "gpu-busy", "op-tree", "health"):
            answer, filtered = traces.query(query, by="run_id"), traces.query(query, by="run_id", filter="true")
            assert answer.arrow().equals(filtered.arrow())
            plain = traces.query(query, by="run_id").rows()
            rows = traces.query(query, by="run_id", filter="true").rows()
            assert rows == plain and [list(map(type, r)) for r in rows] == [list(map(type, r)) for r in plain]


def test_filter_of_a_user_query(trace: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine" / "group" / "long-kernels.sql"
    own.parent.mkdir(parents=True)
    own.write_text(
        "-- What?\n-- @column name text  Kernel.\n-- @column dur_ns ns  Time.\n-- @order dur_ns\n"
        "SELECT run_group, name, sum(dur_ns) AS dur_ns FROM kernels GROUP BY ALL\n"
    )
    with analyze.open(trace, queries=[tmp_path / "mine"]) as traces:
        assert traces.query("long-kernels", filter="dur_ms >= 2").rows() == [
            ("ncclAllReduce", 2_000_000),
            ("gemm", 3_000_000),
        ]
        with pytest.raises(InputError, match=r"--filter 'colour = 1': .*the result has name, dur_ns"):
            traces.query("long-kernels", filter="colour = 1").rows()


def test_a_note_if_the_filter_leaves_no_rows(trace: Path) -> None:
    found = run_cli("query", "kernel-share", trace, "--filter", "calls > 9")
    assert (found.returncode, complaints(found)) == (0, ["note: no rows: --filter 'calls > 9' matches no rows"])
    # A query without rows says what the recording lacks.
    found = run_cli(
        "query", "collectives", write_trace(trace.parent / "one.json", [kernel("k", 0, 1)]), "--filter", "true"
    )
    assert "communication kernels" in complaints(found)[0] and "--filter" not in complaints(found)[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--filter", "colour = 1"], "the result has name, calls, total_ns"),
        (["--filter", "calls >"], "--filter 'calls >'"),
        (["--filter", "calls > 1; SELECT 1"], "--filter 'calls > 1; SELECT 1'"),
        (["--filter", "calls IN (SELECT 1)"], "without a SELECT of its own"),
        (["--filter", "getenv('HOME') = ''"], "getenv"),
        (["--filter", "sum(calls) > 1"], "aggregates"),
        (["--filter", "name"], "Could not convert string"),
        (["--where", "total_ns > 1"], "query --filter filters the rows of a result"),
    ],
)
def test_bad_filters_are_one_sentence(trace: Path, options: list[str], says: str) -> None:
    found = run_cli("query", "kernel-share", trace, *options)
    assert found.returncode == 2 and len(complaints(found)) == 1 and says in found.stderr


def test_filter_needs_a_query() -> None:
    assert "--filter needs the name of a query" in run_cli("query", "--filter", "calls > 1").stderr
