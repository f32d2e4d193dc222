"""Contents of Nsight Systems exports: range names, older layouts, unread tables, managed memory."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import analyze
from analyze.ingestion.discover import discover
from analyze.sources.interface import FileReport
from analyze.sources.nsys.reader import read
from tests.commands import run_cli
from tests.support import ask, sql
from tests.test_nsys_jobs import MS, report
from tests.test_nsys_layouts import Row, process, thread

NVTX = "start end eventType text globalTid textId domainId"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)"


def _range(text: str, start: int, end: int) -> Row:
    return (start, end, 59, text, thread(1, 1), None, 0)


def test_numbers_are_removed_from_range_names(tmp_path: Path) -> None:
    names = {
        "aten::mm, seq = 5, op_id = 12": "aten::mm",
        "aten::mm, op_id = 13": "aten::mm",
        "aten::mm, seq = 6": "aten::mm",
        "aten::mm, op_id = 14, sizes = [[2, 3]], input_op_ids = [(12,0), (13,0)]": "aten::mm, sizes = [[2, 3]]",
        "FullyShardedDataParallel.forward, op_id = 3": "FullyShardedDataParallel.forward",
        "batch, seq = 7 tokens": "batch, seq = 7 tokens",
        "x, lr = 3": "x, lr = 3",
    }
    ranges = [_range(name, 10 * n, 10 * n + 5) for n, name in enumerate(names)]
    path = report(tmp_path / "emit.sqlite", [(1, 0, 100, 200)], more={"NVTX_EVENTS": (NVTX, ranges)})
    assert [r["name"] for r in sql(path, "SELECT name FROM ranges ORDER BY start_ns")] == list(names.values())
    assert {r["name"]: r["instances"] for r in ask(path, "nvtx")}["aten::mm"] == 3


def test_a_range_of_nccls_process_group_names_the_collective(tmp_path: Path) -> None:
    # Launched 50 us before its start at 100 us. An all_to_all runs as SendRecv.
    ranges = [_range("nccl:all_to_all, op_id = 9", 45_000, 60_000)]
    path = report(tmp_path / "a2a.sqlite", [(1, 0, 100, 200)], name=SEND_RECV, more={"NVTX_EVENTS": (NVTX, ranges)})
    assert [r["collective"] for r in ask(path, "collectives")] == ["all_to_all"]


def test_the_gpu_of_exports_until_2021(tmp_path: Path) -> None:
    columns = "globalId deviceId name computeCapabilityMajor computeCapabilityMinor numMultiprocessors"
    gpus = [(None, 1, "Tesla K80", 3, 7, 13), (None, 0, "Tesla V100-SXM2-16GB", 7, 0, 80)]
    path = report(tmp_path / "v.sqlite", [(1, 0, 100, 200)], more={"TARGET_INFO_CUDA_GPU": (columns, gpus)})
    assert sql(path, "SELECT gpu_name, compute_capability FROM runs") == [
        {"gpu_name": "Tesla V100-SXM2-16GB", "compute_capability": "7.0"}
    ]


def test_ranges_of_nvtx_events_v2(tmp_path: Path) -> None:
    domain: Row = (1, None, 75, "library", thread(1, 1), None, 3)
    inner: Row = (10, 20, 59, "inner", thread(1, 1), None, 3)
    more = {"NVTX_EVENTS_V2": (NVTX, [_range("step", 0, 3 * MS), domain, inner])}
    path = report(tmp_path / "v2.sqlite", [(1, 0, 100, 200)], more=more)
    ranges = sql(path, "SELECT name, domain, dur_ns FROM ranges ORDER BY dur_ns DESC")
    assert [tuple(r.values()) for r in ranges] == [("step", None, 3 * MS), ("inner", "library", 10)]
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": None}]


@pytest.mark.parametrize("name", ["report.db", "report.sqlite3", "report"])
def test_an_export_under_another_name(tmp_path: Path, name: str) -> None:
    report(tmp_path / name, [(1, 0, 100, 200), (1, 0, 250, 300)])
    for path in (tmp_path / name, tmp_path):
        assert [(r["busy_ns"], r["span_ns"]) for r in ask(path, "gpu-busy")] == [(150_000, 200_000)]


def test_other_databases_are_rejected(tmp_path: Path) -> None:
    report(tmp_path / "good.db", [(1, 0, 100, 200)])
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        db.execute("CREATE TABLE experiments (id INTEGER)")
    db.close()
    found = discover([tmp_path])
    assert [f.path.name for run in found for f in run.files] == ["good.db"]
    [other] = [w.removeprefix(f"{tmp_path}/") for w in found.warnings]
    assert other.startswith("mlflow.db: not an export of Nsight Systems")


@pytest.mark.parametrize(("older_s", "said"), [(30, None), (3 * 3600, "3 hours"), (3 * 365 * 86_400, "1095 days")])
def test_an_export_that_is_older_than_its_report(tmp_path: Path, older_s: int, said: str | None) -> None:
    path = report(tmp_path / "job.sqlite", [(1, 0, 100, 200)])
    (tmp_path / "job.nsys-rep").write_bytes(b"a report")
    os.utime(tmp_path / "job.nsys-rep", (2_000_000_000, 2_000_000_000))
    os.utime(path, (2_000_000_000 - older_s, 2_000_000_000 - older_s))
    sentence = f"job.sqlite: it is {said} older than job.nsys-rep next to it: export that report again"
    for given in (tmp_path, path):
        assert sql(given, "SELECT warnings FROM runs") == [{"warnings": sentence if said else None}]


def test_tables_that_are_not_read_are_named(tmp_path: Path) -> None:
    of_thread = thread(1, 1)
    more = {
        "UCX_EVENTS": ("start end globalTid textId tag", [(1, 2, of_thread, 1, 0), (3, 4, of_thread, 1, 0)]),
        "OSRT_API": ("start end globalTid nameId", [(1, 2, of_thread, 1)]),
        "NET_IB_DEVICE_EVENTS": ("start end", [(n, n) for n in range(1200)]),
        "FUTURE_EVENTS": ("start end", [(1, 2)]),
        "NIC_METRIC": ("start end", []),
        "PROFILER_OVERHEAD": ("start end globalTid", [(1, 2, of_thread)]),
        # A mark, the name of a domain, and a range.
        "NVTX_EVENTS": ("start end eventType globalTid", [(1, e, kind, of_thread) for e, kind in
                                                          ((None, 34), (None, 75), (9, 59))]),
    }  # fmt: skip
    path = report(tmp_path / "ucx.sqlite", [(1, 0, 100, 200)], more=more)
    said = (
        "ucx.sqlite: recorded and not read: NVTX marks (NVTX_EVENTS: 1 row), FUTURE_EVENTS (1 row), "
        "network metrics (NET_IB_DEVICE_EVENTS: 1,200 rows), UCX calls (UCX_EVENTS: 2 rows)"
    )
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": said}]
    assert said in run_cli("ingest", path, "--store", tmp_path / "store").stderr
    assert "UCX_EVENTS: 2 rows" in run_cli("info", path).stdout
    [reading] = [r for r in ask(path, "health") if r["fact"] == "reading"]
    assert reading["verdict"] == "warning"
    assert said in reading.values()


def test_generic_events_of_other_sources_are_not_read(tmp_path: Path) -> None:
    """Those of GPU metrics are in GPU_METRICS once more."""
    more: dict[str, tuple[str, list[Row]]] = {
        "GENERIC_EVENTS": ("rawTimestamp typeId", [(1, 10), (2, 10), (3, 11), (4, 20), (5, None), (6, 99)]),
        "GENERIC_EVENT_TYPES": ("typeId sourceId", [(10, 1), (11, 1), (20, 2)]),
        "TARGET_INFO_GPU_METRICS": ("typeId sourceId metricId metricName", [(10, 1, 0, "SM Active")]),
    }
    path = report(tmp_path / "ftrace.sqlite", [(1, 0, 100, 200)], more=more)
    assert sql(path, "SELECT warnings FROM runs") == [
        {"warnings": "ftrace.sqlite: recorded and not read: GENERIC_EVENTS (3 rows)"}
    ]


def test_tables_that_are_not_read_in_folders(tmp_path: Path) -> None:
    one = pa.table({"start": [1, 2], "end": [3, 4]})
    meta = pa.table({"name": pa.array([], pa.string()), "value": pa.array([], pa.string())})
    strings = pa.table({"id": [1], "value": ["x"]})
    for name, table in (("META_DATA_EXPORT", meta), ("StringIds", strings), ("UCX_EVENTS", one)):
        (tmp_path / "p").mkdir(exist_ok=True)
        (tmp_path / "a").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "p" / f"{name}.parquet")
        with pa.ipc.new_stream(tmp_path / "a" / f"{name}.arrow", table.schema) as writer:
            writer.write_table(table)
    for path in (tmp_path / "p" / "META_DATA_EXPORT.parquet", tmp_path / "a" / "META_DATA_EXPORT.arrow"):
        found = FileReport()
        assert list(read(path, found)) == []
        assert found.warnings == [f"{path.name}: recorded and not read: UCX calls (UCX_EVENTS: 2 rows)"]


def test_unknown_table_names_are_escaped_in_warnings(tmp_path: Path) -> None:
    path = report(tmp_path / "odd.sqlite", [(1, 0, 100, 200)])
    with sqlite3.connect(path) as db:
        db.execute('CREATE TABLE "a"" b\n\x1b" (start INTEGER)')
        db.execute('INSERT INTO "a"" b\n\x1b" VALUES (1)')
        for n in range(20):
            db.execute(f"CREATE TABLE T{n:02d} (start INTEGER)")
            db.execute(f"INSERT INTO T{n:02d} VALUES (1)")
    db.close()
    [run] = sql(path, "SELECT warnings FROM runs")
    named = ", ".join(f"T{n:02d} (1 row)" for n in range(16))
    assert run["warnings"] == f"odd.sqlite: recorded and not read: {named}, 4 more tables"


def test_pages_of_managed_memory_are_not_advised_to_be_pinned(tmp_path: Path) -> None:
    # A kernel of 10 ms, in which 3 x 2 MiB come within 0.5 ms each; 4 MiB go back in 0.8 ms after it.
    moves = [(n * MS, n * MS + MS // 2, 0, 7, None, process(1), 2 << 20, 11, 4, 4) for n in (3, 5, 7)]
    moves.append((13 * MS, 13 * MS + 800_000, 0, 7, None, process(1), 4 << 20, 12, 4, 4))
    columns = "start end deviceId streamId correlationId globalPid bytes copyKind srcKind dstKind"
    more: dict[str, tuple[str, list[Row]]] = {"CUPTI_ACTIVITY_KIND_MEMCPY": (columns, list(moves))}
    path = report(tmp_path / "uvm.sqlite", [(1, 0, 2000, 12_000)], more=more)
    with analyze.open(path) as traces:
        advice = {a["finding"]: a for a in traces.advise().dicts()}
    assert "exposed-copies" not in advice
    # All that moves may be waited for: 3 x 0.5 + 0.8 of a span of 11.8 ms.
    assert advice["managed-memory"]["saving_ns"] == 2_300_000
    assert advice["managed-memory"]["evidence"] == "4 page migrations (10.0 MiB), 2.300 ms in total"
    assert "cudaMemPrefetchAsync" in advice["managed-memory"]["try"]
    assert not any("pinned" in a["try"] or "pin_memory" in a["try"] for a in advice.values())


def test_what_threads_did_is_read(tmp_path: Path) -> None:
    """Rows of the rank's process; the stack of a sample is joined, a symbol that is an address is its library."""
    here, elsewhere = thread(1, 5), thread(2, 2)
    more = {
        "StringIds": ("id value", [(10, "sem_wait"), (11, "0x7f00"), (12, "/lib/libc.so.6"), (13, "main")]),
        "OSRT_API": ("start end globalTid nameId", [(10, 30, here, 10), (50, 40, here, 10), (1, 2, elsewhere, 10)]),
        "SCHED_EVENTS": ("start cpu isSchedIn globalTid", [(10, 3, 0, here), (30, 2, 1, here), (None, 2, 0, here)]),
        "COMPOSITE_EVENTS": ("id start cpu globalTid", [(1, 60, 2, here), (9, 70, 2, here)]),
        "SAMPLING_CALLCHAINS": ("id symbol module stackDepth", [(1, 11, 12, 0), (1, 13, 12, 1)]),
    }
    path = report(tmp_path / "threads.sqlite", [(1, 0, 100, 200)], more=more)
    calls = sql(path, "SELECT tid, name, start_ns, dur_ns FROM os_calls")
    assert calls == [{"tid": 5, "name": "sem_wait", "start_ns": 10, "dur_ns": 20}]
    switches = sql(path, "SELECT tid, cpu, start_ns, is_in FROM thread_switches ORDER BY start_ns")
    assert [tuple(r.values()) for r in switches] == [(5, 3, 10, False), (5, 2, 30, True)]
    samples = sql(path, "SELECT start_ns, function, stack FROM cpu_samples ORDER BY start_ns")
    assert [tuple(r.values()) for r in samples] == [(60, "[libc.so.6]", "main > [libc.so.6]"), (70, None, None)]
    [run] = sql(path, "SELECT warnings FROM runs")
    for said in ("1 os call with an end before", "1 thread switch without a start", "1 host event of 1 process"):
        assert said in run["warnings"], run["warnings"]


def test_backtraces_of_calls(tmp_path: Path) -> None:
    """NVIDIA's documentation of the exporter has these tables. There, ids are the same in both.

    The longest call says who called it. Real exports: test_nsys_real.py.
    """
    stack = "id symbol module stackDepth"
    here = thread(1, 1)
    more = {
        "StringIds": (
            "id value",
            [(10, "cudaStreamSynchronize_v3020"), (11, "item"), (12, "train"), (13, "eval"), (14, "read"),
             (15, "load")],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start end globalTid correlationId nameId callchainId",
            [(50_000, 55_000, here, 1, 2, None), (300_000, 310_000, here, 5, 10, 2), (400_000, 440_000, here, 6, 10, 1),
             (500_000, 501_000, here, 7, 10, 9)],
        ),
        "CUDA_CALLCHAINS": (stack, [(1, 11, None, 0), (1, 12, None, 1), (2, 11, None, 0), (2, 13, None, 1)]),
        "OSRT_API": ("start end globalTid nameId callchainId", [(10, 30, here, 14, 1)]),
        "OSRT_CALLCHAINS": (stack, [(1, 14, None, 0), (1, 15, None, 1)]),
    }  # fmt: skip
    path = report(tmp_path / "calls.sqlite", [], more=more)
    assert [(r["calls"], r["called_by"]) for r in ask(path, "api-sync")] == [(3, "train > item")]
    stacks = sql(path, "SELECT stack FROM cuda_calls ORDER BY start_ns")
    assert [r["stack"] for r in stacks] == [None, "eval > item", "train > item", None]
    assert sql(path, "SELECT name, stack FROM os_calls") == [{"name": "read", "stack": "load > read"}]
