"""All queries: documented columns are returned, shares add up, and each is computed once by hand."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path

import duckdb
import pytest
from commands import run_cli
from support import ROOT, SAMPLES, ask, sample_engine
from test_render import WIDTHS, check
from traces import event, kernel, launch, write_trace

import analyze
from analyze.errors import InputError
from analyze.finding_files import findings
from analyze.query.databases import Database
from analyze.query.engine import Engine
from analyze.query.modules import defining
from analyze.query.query_declaration import Query
from analyze.query.query_files import catalog, parse
from analyze.query.selection import RUN_COLUMNS, Selection
from analyze.query.sql_checks import names_in
from analyze.store.store import Store
from schemas.phases import PHASES

CATALOG = catalog()
SPINE = (
    "runs", "kernel-share", "nccl-share", "winograd-share", "gpu-busy", "ops", "cuda-api", "phases", "steps",
    "kernel-by-phase", "calls", "memory-peak", "flops-by-op",
)  # fmt: skip


def test_core_queries_exist() -> None:
    assert set(SPINE) <= set(CATALOG)


@pytest.fixture(scope="module")
def samples() -> analyze.Traces:
    return analyze.open(SAMPLES)


@pytest.mark.parametrize("query", CATALOG.values(), ids=lambda q: q.name)
def test_documented_columns_are_the_ones_returned(query: Query) -> None:
    """With every choice of every parameter; `run_group` comes first and is not documented."""
    engine = sample_engine("late-rank")
    for choice in [{}] + [{p.name: c} for p in query.params for c in p.choices]:
        sql, values, choices = query.bind(choice)
        # It declares the blocks that it reads, of which the engine has those of other queries, too.
        assert set(defining(names_in(engine.connection, sql, query.name))) <= set(query.used(choices))
        engine.query(query, choice)
        bare = engine.connection.sql(sql, params=values or None).columns
        documented = [c.name for c in query.result_columns(choices)]
        assert bare[0] == "run_group", "a query returns run_group first"
        assert set(documented) <= set(bare)
        assert documented
        # What is not documented is there to sort by.
        assert {c for c in set(bare[1:]) - set(documented) if not re.search(rf"\b{c}\b", query.order)} == set()


NOT_ADDED = {
    "collectives": "a call is one of all its ranks",
    "collective-waits": "a call is one of all its ranks",
    "comm-exposed": "a call is one of all its ranks",
    "fsdp": "a call is one of all its ranks",
    "hang": "a call is one of all its ranks",
    "compile-skew": "a compilation is one of all its ranks",
    "moe-balance": "a destination's load is there for each source",
    "stragglers": "a call is one of all its ranks",
    "pipeline-bubbles": "a transfer is one of two ranks",
    "epochs": "an epoch is one of all its ranks",
    "gaps": "the longest of each group",
    "kernel-pace": "the kernels of each group that take the most time",
    "slowest-kernels": "the longest of each group",
    "frequent-sequences": "those of each group that are found often enough",
    "runs": "a run's ranks are its own",
    "step-parts": "means over the steps of all GPUs",
    "summary": "means of a run",
    "useful-flops": "a run of Nsight Compute is compared with a torch run of its own group only",
}
"""Queries whose rows do not add up over groups of ranks or runs, and why."""
NO_SUMS = {
    "rank-skew": "least, middle and most of the ranks",
    "roofs": "rates of a GPU",
    "health": "facts",
    "workload": "kinds",
}
"""Queries without a column that adds up, and what they are of."""
NO_SAMPLE = {"nccl-log"}
"""Queries of formats that no sample has; their own tests ask them by rank."""
ADDED = re.compile(r"^(?!min_|max_|avg_|median_|peak_|ranks$).*(?<!_per_image)$")


GROUPS = ((), ("model", "parallelism", "rank"))
VARIED = (
    "recompile-ddp", "expert-4gpu", "pipeline-4gpu", "generate", "out-of-memory", "hang-size", "cpu-threads",
    "fsdp-tp-4gpu", "resnet18-1gpu", "resnet18-ncu", "resnet18-checkpoint", "cuda-graph", "alexnet-dp2",
)  # fmt: skip
"""Samples that together have rows for all queries but NO_SAMPLE."""


@pytest.fixture(scope="module")
def grouped() -> list[Engine]:
    """An engine for each of GROUPS, over all passes."""
    stores = [store for name in VARIED for store in analyze.open(SAMPLES / name).stores]
    return [Engine(stores, Selection(profiler="all", by=by)) for by in GROUPS]


@pytest.mark.parametrize("query", [q for q in CATALOG.values() if q.name not in NO_SAMPLE], ids=lambda q: q.name)
def test_groups_are_named_and_add_up(grouped: list[Engine], query: Query) -> None:
    """By rank and what several runs share: every row says of which it is, and sums over the groups are the sums without
    groups, which fit the terminal."""
    sums: dict[str, float | None] = {}
    compared = set()
    for by, engine in zip(GROUPS, grouped, strict=True):
        answer = engine.query(query)
        names = [c.name for c in answer.columns]
        rows = answer.rows()
        assert tuple(names[: len(by)]) == by and len(set(names)) == len(names)
        assert rows
        for width in () if by else WIDTHS:
            check(answer.columns, rows, answer.main, width, f"{query.name} at {width}")
        always = [i for i, name in enumerate(by) if name in ("run_id", "rank")]
        assert not any(row[i] is None for row in rows for i in always)
        for i, column in enumerate(answer.columns):
            if column.unit in ("count", "ns", "B", "FLOP") and ADDED.match(column.name) and query.name not in NOT_ADDED:
                values = [row[i] for row in rows]
                # What one row does not know, the whole does not either.
                total = None if None in values else sum(values)
                if not by:
                    sums[column.name] = total
                elif None not in (total, sums[column.name]):
                    assert total == pytest.approx(sums[column.name], rel=1e-12, abs=1e-6), (by, column.name)
                    compared.add((by, column.name))
    # Unless there is nothing to add, some sum was known for each way to group, and compared.
    assert {by for by, _ in compared} == ({*GROUPS} - {()} if sums else set())
    assert bool(sums) == (query.name not in NOT_ADDED | NO_SUMS)


def test_shown_sql_has_its_texts_as_literals() -> None:
    """What a page shows as the SQL of an answer can be run."""
    shown = CATALOG["slowest-kernels"].filled({"kernel": "it's \\d"})
    assert "contains(name, 'it''s \\d')" in shown and "$kernel" not in shown


def test_runs_by_rank_shows_every_rank(samples: analyze.Traces) -> None:
    rows = samples.where("parallelism = 'ddp'").query("runs", by=["rank"]).dicts()
    assert [(r["rank"], r["ranks"]) for r in rows] == [(0, 2), (1, 2)]


def test_ties_come_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are equal in the sorted column have the query's order, then that of all columns."""
    monkeypatch.delenv("TRACEQUARRY_THREADS")  # several threads
    names = [f"k{i:03}" for i in range(200)]
    path = write_trace(tmp_path / "t.json", [kernel(n, 10 * i, 5) for i, n in enumerate(reversed(names))])
    traces = analyze.open(path)
    for sort in ("calls", "-calls", "-total_ns,calls", None):
        for limit in (None, 20):
            rows = traces.query("kernel-share", sort=sort, limit=limit, select=["name"]).dicts()
            assert [r["name"] for r in rows] == names[:limit], sort
    by_group = traces.query("kernel-share", by=["model", "rank"], sort="-rank,model", select=["name"]).dicts()
    assert [r["name"] for r in by_group] == names


def test_every_number_has_a_range() -> None:
    for query in [*CATALOG.values(), *(f.query for f in findings())]:
        for p in query.params:
            assert p.type in ("choice", "text", "regex", "number", "int")
            if p.type in ("number", "int"):
                assert p.low >= 0 and p.high <= 1e15, (query.name, p.name)
                for wrong in (
                    str(p.low - 1),
                    str(p.high * 10),
                    "nan",
                    "inf",
                    "-inf",
                    "1e400",
                    "9" * 5000,
                    "²",
                    "x",
                    "",
                ):
                    with pytest.raises(InputError, match=p.name):
                        query.bind({p.name: wrong})
                if p.type == "int":
                    with pytest.raises(InputError, match=r"must be a whole number, not '2\.5'"):
                        query.bind({p.name: "2.5"})


@pytest.fixture(scope="module")
def two_kernels(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Of a trace of two kernels and a copy of a TiB."""
    events = [
        launch(1, 1), kernel("k", 5, 5, correlation=1), launch(2, 2), kernel("k", 20, 5, correlation=2),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, 2, 0, 7, bytes=2**40),
    ]  # fmt: skip
    return Engine(analyze.open(write_trace(tmp_path_factory.mktemp("two") / "t.json", events)).stores)


@pytest.mark.parametrize("query", [q for q in CATALOG.values() if q.params], ids=lambda q: q.name)
def test_the_ends_of_a_range_are_answered(two_kernels: Engine, query: Query) -> None:
    """No product of a parameter leaves 64 bits, and no answer is endless."""
    for p in query.params:
        if p.type in ("number", "int"):
            for end in (p.low, min(p.high, 1000) if p.name == "buckets" else p.high):
                two_kernels.query(query, {p.name: f"{end:.0f}"}).rows()


def test_large_parameters_are_not_of_32_bits(tmp_path: Path) -> None:
    events = [launch(1, 1, 5), kernel("k", 10, 5, correlation=1)]
    events.append(event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, 2, 0, 7, bytes=1000))
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "launch", params={"call_us": 3_000_000})
    assert row["call_outliers"] == 0
    [row] = ask(path, "copies", params={"small_kib": 3_000_000})
    assert row["small_copies"] == 1


def test_a_product_beyond_64_bits_is_unknown(tmp_path: Path) -> None:
    # 2 * 4e9^3 is beyond int64; 2 * 2 * 3 * 5 = 60.
    shapes = ([[4_000_000_000] * 2] * 2, [[2, 3], [3, 5]])
    events = [event("cpu_op", "aten::mm", 10 * i, 5, **{"Input Dims": dims}) for i, dims in enumerate(shapes)]
    [row] = ask(write_trace(tmp_path / "t.json", events), "flops-by-op")
    assert (row["calls"], row["flops"], row["unknown_calls"]) == (2, 60, 1)


def test_parameters_declare_their_ranges(tmp_path: Path) -> None:
    head, end = "-- What?\n-- @param x ", " = 3  It.\n-- @column y number   It.\nSELECT 1"
    path = tmp_path / "q.sql"
    for kind, low, high, takes in (
        ("int[1..10]", 1, 10, "int 1..10"),
        ("number[0.5..1e3]", 0.5, 1000, "number 0.5..1000"),
        ("number[0..]", 0, 2**53, "number 0.."),
        ("number", -(2**53), 2**53, "number"),
    ):
        path.write_text(head + kind + end)
        [param] = parse(path).params
        assert (param.low, param.high, param.takes) == (low, high, takes)
    for wrong in ("int[1..x]", "int[1]", "float", "int[1..2", "number(0..1)"):
        path.write_text(head + wrong + end)
        with pytest.raises(InputError, match="a parameter is"):
            parse(path)


def test_times_with_a_zone_are_utc(samples: analyze.Traces) -> None:
    engine = Engine(samples.stores)
    before = datetime.now(UTC).replace(tzinfo=None)
    [(now, text, nested)] = engine.sql("SELECT now(), now()::VARCHAR, {'t': [now()]}").rows()
    assert timedelta(0) <= now - before < timedelta(minutes=5)
    assert text.endswith("+00") and nested == {"t": [now]}
    [(same,)] = engine.sql("SELECT TIMESTAMPTZ '2026-11-21 12:00:00+03'").rows()
    assert same == datetime(2026, 11, 21, 9)


def test_a_damaged_file_of_a_store_is_named(tmp_path: Path) -> None:
    for damage in ("gone", "empty", "cut", "other"):
        raw = write_trace(tmp_path / damage / "t.json", [kernel(f"k{i}", i, 1) for i in range(50)])
        assert run_cli("ingest", raw, "--store", tmp_path / f"{damage}-store").returncode == 0
        store = tmp_path / f"{damage}-store"
        [parquet] = (store / "kernels").rglob("*.parquet")
        content = parquet.read_bytes()
        parquet.write_bytes({"cut": content[: len(content) // 2], "other": b"x" * len(content)}.get(damage, b""))
        if damage == "gone":
            parquet.unlink()
        for arguments in (
            ["query", "kernel-share", store],
            ["query", "kernel-durations", store],
            ["sql", "SELECT * FROM kernels", store],
            ["advise", store],
            ["trace", store, "-o", tmp_path / "out.json"],
        ):
            result = run_cli(*arguments)
            assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.stderr
            assert parquet.name in result.stderr, result.stderr
    assert not (tmp_path / "out.json").exists()


def test_spill_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of a DuckDB that is gone, of processes that were killed, but not those of the living."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living = Database([], None)
    [kept] = tmp_path.glob("tracequarry-spill-*")
    (kept / "spilled.tmp").write_text("x")
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from analyze.query.duckdb_memory import spill_folder\n"
        "f = spill_folder(); (f / 'left.tmp').write_text('x'); print(f, flush=True); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    left = Path(killed.stdout.strip())
    assert left.parent == tmp_path and (left / "left.tmp").exists()
    for folder in (kept, left):
        os.utime(folder, (0, 0))
    with pytest.raises((duckdb.Error, UnicodeError)):
        Database(["\udcff.parquet"], None)
    gc.collect()
    assert list(tmp_path.glob("tracequarry-spill-*")) == [kept] and (kept / "spilled.tmp").exists()
    del living
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_query_of_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    """And no number is made up for it: what is not NULL or 0 is that the trace is of one rank."""
    engine = Engine(analyze.open(write_trace(tmp_path / "t.json", [])).stores)
    made_up = []
    for query in CATALOG.values():
        answer = engine.query(query)
        for row in answer.rows():
            cells = zip(answer.columns, row, strict=True)
            made_up += [(query.name, c.name) for c, value in cells if value and c.unit not in ("text", "id")]
    assert made_up == [("runs", "ranks"), ("summary", "ranks")]


@pytest.mark.parametrize(
    ("query", "share", "within"),
    [
        ("kernel-share", "kernel_time_pct", ()),
        ("nccl-share", "comm_time_pct", ()),
        ("cuda-api", "api_time_pct", ()),
        ("calls", "calls_pct", ("kind",)),
        ("phases", "gpu_time_pct", ()),
        ("kernel-by-phase", "phase_time_pct", ("phase",)),
        ("kernel-by-phase", "kernel_time_pct", ()),
        ("api-by-phase", "phase_time_pct", ("phase",)),
        ("api-by-phase", "api_time_pct", ()),
        ("flops-by-op", "flops_pct", ()),
    ],
)
def test_shares_add_up(samples: analyze.Traces, query: str, share: str, within: tuple[str, ...]) -> None:
    for by in ([], ["model", "parallelism"]):
        sums: dict[tuple[object, ...], float] = {}
        for row in samples.query(query, by=by).dicts():
            key = tuple(row[k] for k in (*by, *within))
            sums[key] = sums.get(key, 0) + row[share]
        assert sums
        for key, total in sums.items():
            assert total == pytest.approx(100, abs=1e-9), key


def test_totals_agree_across_queries(samples: analyze.Traces) -> None:
    """The same ns whichever way they are cut: by name, by family, by phase, and straight from the table."""
    samples = samples.where(block="full")
    [direct] = samples.sql("SELECT sum(dur_ns)::BIGINT AS ns, count(*) AS n FROM kernels").dicts()
    for name, params in (("kernel-share", {}), ("kernel-share", {"group": "family"}), ("kernel-by-phase", {})):
        rows = samples.query(name, params=params).dicts()
        assert sum(r["total_ns"] for r in rows) == direct["ns"]
        assert sum(r["calls"] for r in rows) == direct["n"]


def test_kernel_share_by_hand(tmp_path: Path) -> None:
    # a: 3 + 1 us, b: 4 us of kernels; a copy of 2 us: a is 4/8 of kernel time and 4/10 of GPU time.
    events = [
        kernel("a", 0, 3),
        kernel("a", 5, 1),
        kernel("b", 7, 4),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 2, 0, 7),
    ]
    rows = ask(write_trace(tmp_path / "t.json", events), "kernel-share")
    assert rows == [
        {
            "name": name, "calls": calls, "total_ns": 4000, "avg_ns": 4000 / calls, "min_ns": low, "max_ns": high,
            "kernel_time_pct": 50.0, "gpu_time_pct": 40.0,
        }
        for name, calls, low, high in (("a", 2, 1000, 3000), ("b", 1, 4000, 4000))
    ]  # fmt: skip


def test_phases_by_hand(tmp_path: Path) -> None:
    # forward [0, 10) launches at 2 (kernel of 5 us at 20) and from another thread at 9 (3 us at 30): 8 us of work, from
    # 20 to 33 = 13 us. backward [10, 20) launches at 10 (2 us). At 25 a launch outside, 1 us. In all 11 us.
    events = [
        event("user_annotation", "forward", 0, 10),
        event("user_annotation", "backward", 10, 10),
        launch(2, 1), kernel("k", 20, 5, correlation=1),
        launch(9, 2) | {"tid": 2}, kernel("k", 30, 3, correlation=2),
        launch(10, 3), kernel("k", 40, 2, correlation=3),
        launch(25, 4), kernel("k", 50, 1, correlation=4),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    rows = [
        (r["phase"], r["calls"], r["cpu_ns"], r["gpu_ops"], r["gpu_ns"], r["gpu_span_ns"]) for r in ask(path, "phases")
    ]
    assert rows == [
        ("forward", 1, 10000, 2, 8000, 13000),
        ("backward", 1, 10000, 1, 2000, 2000),
        ("(outside)", 0, 0, 1, 1000, None),
    ]
    [row] = ask(path, "kernel-by-phase", params={"phase": "backward"})
    assert (row["name"], row["phase_time_pct"], row["kernel_time_pct"]) == ("k", 100.0, pytest.approx(200 / 11))


def test_api_time_by_phase_by_hand(tmp_path: Path) -> None:
    # forward [0, 10): a launch of 3 us. backward [10, 20): launches of 4 us and, from another thread, of 2 us, and 2 us
    # of an event's recording: 6 of 8 us. Outside, a synchronisation of 4 us. In all 15 us.
    events = [
        event("user_annotation", "forward", 0, 10), event("user_annotation", "backward", 10, 10),
        launch(2, 1, 3), launch(10, 2, 4), launch(12, 3, 2) | {"tid": 2},
        launch(15, 4, 2, "cudaEventRecord"), launch(25, 5, 4, "cudaDeviceSynchronize"),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)

    def shown(**params: str) -> list[tuple[object, ...]]:
        names = ("phase", params.get("group", "name"), "calls", "total_ns", "phase_time_pct")
        return [tuple(r[n] for n in names) for r in ask(path, "api-by-phase", params=params)]

    assert shown() == [
        ("(outside)", "cudaDeviceSynchronize", 1, 4000, 100.0),
        ("backward", "cudaLaunchKernel", 2, 6000, 75.0),
        ("backward", "cudaEventRecord", 1, 2000, 25.0),
        ("forward", "cudaLaunchKernel", 1, 3000, 100.0),
    ]
    assert shown(group="role", phase="backward") == [
        ("backward", "launch", 2, 6000, 75.0),
        ("backward", "other", 1, 2000, 25.0),
    ]
    [waited] = [r for r in ask(path, "api-by-phase") if r["phase"] == "(outside)"]
    assert waited["api_time_pct"] == pytest.approx(400 / 15) and waited["avg_ns"] == 4000


def test_steps_from_a_trace_without_step_metrics(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ProfilerStep#4", 0, 100),
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 30),
        event("user_annotation", "ProfilerStep#5", 100, 50),
    ]
    rows = ask(write_trace(tmp_path / "t.json", events), "steps")
    assert [(r["step"], r["data_ns"], r["train_ns"], r["step_ns"], r["data_pct"]) for r in rows] == [
        (4, 30000, 70000, 100000, 30.0),
        (5, 0, 50000, 50000, 0.0),
    ]


def test_calls_by_hand(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 10), event("user_annotation", "ProfilerStep#2", 10, 10),
        *(event("cpu_op", "aten::add", i, 1) for i in range(3)), event("cpu_op", "aten::mul", 4, 1),
        launch(5, 1), kernel("k", 6, 1, correlation=1),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "calls", params={"kind": "op"})
    assert [(r["name"], r["calls"], r["calls_pct"], r["calls_per_step"]) for r in rows] == [
        ("aten::add", 3, 75.0, 1.5),
        ("aten::mul", 1, 25.0, 0.5),
    ]


def test_winograd_by_hand(tmp_path: Path) -> None:
    # 2 us Winograd, 6 us of another convolution, 12 us of a matrix product: 2/20 of all, 2/8 of convolutions.
    events = [
        kernel("maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt", 0, 2),
        kernel("sm90_xmma_fprop_implicit_gemm_tf32f32", 10, 6),
        kernel("ampere_sgemm_128x64_tn", 20, 12),
    ]
    assert ask(write_trace(tmp_path / "t.json", events), "winograd-share") == [
        {"winograd_ns": 2000, "conv_ns": 8000, "kernel_ns": 20000, "kernel_time_pct": 10.0, "conv_time_pct": 25.0}
    ]


def test_the_samples_show_what_they_were_recorded_for(samples: analyze.Traces) -> None:
    """alexnet under DataParallel broadcasts, DDP reduces, vgg16 in fp32 without TF32 uses Winograd kernels."""
    nccl = samples.query("nccl-share", by=["parallelism"]).dicts()
    shares = {(r["parallelism"], r["collective"]): r["kernel_time_pct"] for r in nccl}
    # The same workload measured elsewhere on H200s spends about a quarter of its kernel time in each of the two.
    assert 10 < shares["dp", "broadcast"] < 40 and 10 < shares["dp", "reduce"] < 40
    assert shares["ddp", "all_reduce"] > 0
    winograd = {r["model"]: r["kernel_time_pct"] for r in samples.query("winograd-share", by=["model"]).dicts()}
    assert winograd["vgg16"] > 1
    phases = {r["phase"] for r in samples.query("phases").dicts()}
    assert set(PHASES) <= phases


def test_by_and_where(samples: analyze.Traces) -> None:
    rows = samples.where("gpus = 2 AND parallelism = 'ddp' AND rank = 1").query("gpu-busy", by=["model"]).dicts()
    assert [(r["model"], r["rank"]) for r in rows] == [("resnet18", 1)]
    by_rank = (
        samples.where("parallelism = 'ddp'").query("kernel-share", by=["rank"], params={"group": "family"}).dicts()
    )
    assert {r["rank"] for r in by_rank} == {0, 1}
    with pytest.raises(InputError, match="--by colour: runs has no such column"):
        samples.query("runs", by=["colour"]).arrow()
    with pytest.raises(InputError, match="--where"):
        samples.where("colour = 1").query("runs").arrow()


def test_sort_and_limit(samples: analyze.Traces) -> None:
    rows = samples.query("kernel-share", sort="-calls,name", limit=3).dicts()
    everything = samples.query("kernel-share").dicts()
    assert rows == sorted(everything, key=lambda r: (-r["calls"], r["name"]))[:3]
    with pytest.raises(InputError, match="no such column"):
        samples.query("kernel-share", sort="colour").arrow()


def test_own_query_files(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "group"
    folder.mkdir(parents=True)
    (folder / "long-kernels.sql").write_text(
        "-- Which kernels are long?\n-- @param at_least_us number = 3   Threshold.\n"
        "-- @column name text   Kernel.\n-- @column dur_ns ns   Length.\n-- @order dur_ns DESC\n"
        "SELECT run_group, name, dur_ns FROM kernels WHERE dur_ns >= $at_least_us * 1000\n"
    )
    path = write_trace(tmp_path / "t.json", [kernel("a", 0, 2), kernel("b", 5, 4), kernel("c", 10, 6)])
    traces = analyze.open(path, queries=[tmp_path / "mine"])
    assert [r["name"] for r in traces.query("long-kernels").dicts()] == ["c", "b"]
    assert [r["name"] for r in traces.query("long-kernels", params={"at_least_us": 5}).dicts()] == ["c"]
    with pytest.raises(InputError, match="at_least_us must be a number"):
        traces.query("long-kernels", params={"at_least_us": "x"}).arrow()
    with pytest.raises(InputError, match="has no parameter"):
        traces.query("long-kernels", params={"other": 1}).arrow()
    with pytest.raises(InputError, match="did you mean long-kernels"):
        traces.query("long-kernel").arrow()
    (folder / "bad.sql").write_text("-- A question\n-- @column x furlongs  no such unit\nSELECT 1")
    with pytest.raises(InputError, match=r"bad\.sql.*not a well-formed @column"):
        parse(folder / "bad.sql")


def test_several_stores_at_once(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path / n / "t.json", [kernel(n, 0, 1)]) for n in "ab"]
    assert {r["name"] for r in analyze.open(*paths).query("kernel-share").dicts()} == {"a", "b"}
    stores = analyze.open(*paths).stores
    assert all(isinstance(s, Store) for s in stores)


def test_group_column_may_equal_a_query_column() -> None:
    """`-p group=rank --by rank`: the rows' rank is a text in some answers, the groups' a number."""
    same = [
        (query, params, column.name)
        for query in catalog().values()
        for params in _choices(query)
        for column in query.result_columns(params)
        if column.name in RUN_COLUMNS and column.name != "run_id"
    ]
    assert {("moe-balance", "source"), ("roofs", "source"), ("scaling", "batch_size")} <= {
        (q.name, by) for q, _, by in same
    }
    answered = set()
    # (What types do not fit shows on any recording; rows, on those that have them.)
    named = [(query, params, by) for query, params, by in same if by in params.values()]
    once = {(query.name, by, query.result_columns(params)): (query, params, by) for query, params, by in same}
    for sample, asked in (("late-rank", once.values()), ("fsdp-tp-4gpu", named)):
        for query, params, by in asked:
            answer = sample_engine(sample, Selection(by=(by,), prefer=query.prefer)).query(query, params)
            names = [c.name for c in answer.columns]
            if (rows := answer.rows()) and asked is named:
                answered.add(query.name)
                assert {str(row[names.index(by)]) for row in rows} == {"0", "1", "2", "3"}, (query.name, params)
    assert {"collective-waits", "fsdp", "health"} <= answered


def _choices(query: Query) -> list[dict[str, str]]:
    """Parameters of a query, such that each choice is in one of them."""
    names = [p.name for p in query.params if p.choices]
    many = zip_longest(*(p.choices for p in query.params if p.choices))
    defaults = {p.name: p.default for p in query.params if p.choices}
    return [{n: c or defaults[n] for n, c in zip(names, row, strict=True)} for row in many] or [{}]


def test_by_column_that_collides_with_a_query_column() -> None:
    """`moe-balance --by source`: its source is a rank, that of runs a file."""
    traces = analyze.open(SAMPLES / "expert-4gpu")
    plain = traces.query("moe-balance").arrow()
    grouped = traces.query("moe-balance", by="source").arrow()
    assert grouped.column_names[0] == "run_source" and grouped.drop("run_source").equals(plain)
    assert grouped["run_source"].unique().to_pylist() == [traces.sql("SELECT source FROM runs").arrow()[0][0].as_py()]
    picked = traces.query("moe-balance", by="source", sort="-run_source,-source", select="source,run_source", limit=1)
    assert picked.rows()[0][0] == 3
    assert traces.query("moe-balance", by="source").main[:1] == ("run_source",)
