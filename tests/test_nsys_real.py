"""Exports that Nsight Systems 2023.4 recorded on H100s (torch 2.11 for CUDA 13, driver 580), against plain SQLite.

That version does not know CUDA 13: most kernels and CUDA calls are missing. The programs are in tests/data/nsys-real:

    nsys profile -t cuda,nvtx --gpu-metrics-device=3 --gpu-metrics-frequency=1000 python3 mm.py
    nsys profile -t cuda --cuda-um-cpu-page-faults=true --cuda-um-gpu-page-faults=true python3 uvm.py
    nsys profile -t cuda,osrt --cudabacktrace=all --sample=process-tree --cpuctxsw=process-tree python3 mm.py

each with CUDA_VISIBLE_DEVICES=3 and --resolve-symbols=false, exported by `nsys export -t sqlite` and cut by cut.py.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import analyze
from tests.support import ROOT, ask, sql

REAL = ROOT / "tests" / "data" / "nsys-real"
METRICS, MANAGED, BACKTRACES, MPI = (
    REAL / f"{name}.sqlite.gz" for name in ("gpu_metrics", "managed_memory", "backtraces", "mpi")
)
MIB = 1 << 20


@cache
def _database(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.deserialize(gzip.decompress(path.read_bytes()))
    return db


def _plain(path: Path, statement: str) -> list[tuple[Any, ...]]:
    return _database(path).execute(statement).fetchall()


def _read(path: Path, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in sql(path, statement)]


@pytest.mark.parametrize(
    ("path", "table", "sources", "elsewhere"),
    [
        (METRICS, "counters", ["GPU_METRICS"], 0),
        (METRICS, "cuda_calls", ["CUPTI_ACTIVITY_KIND_RUNTIME"], 0),
        (MANAGED, "memcpys", ["CUPTI_ACTIVITY_KIND_MEMCPY"], 0),
        (MANAGED, "counters", ["CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"], 0),
        # Four calls have a row of CUPTI and one of the backtrace. Of OSRT_API, one row says that tracing began.
        (BACKTRACES, "cuda_calls", ["CUPTI_ACTIVITY_KIND_RUNTIME"], 4),
        (BACKTRACES, "os_calls", ["OSRT_API"], 1),
        (BACKTRACES, "thread_switches", ["SCHED_EVENTS"], 0),
        (BACKTRACES, "cpu_samples", ["COMPOSITE_EVENTS"], 0),
    ],
)
def test_all_rows_are_read(path: Path, table: str, sources: list[str], elsewhere: int) -> None:
    rows = sum(n for source in sources for (n,) in _plain(path, f"SELECT count(*) FROM {source}"))
    assert _read(path, f"SELECT count(*) FROM {table}") == [(rows - elsewhere,)]
    assert _read(path, "SELECT warnings FROM runs") == [(None,)]


def test_metrics_of_a_gpu() -> None:
    """GPU 3 is CUDA device 0 of the program. nsys names clocks MHz and writes Hz: 1,980 MHz is the boost clock."""
    expected = {
        name: (0, n, mean, low, high)
        for name, n, mean, low, high in _plain(
            METRICS,
            "SELECT metricName, count(*), avg(value * unit), min(value * unit), max(value * unit) FROM GPU_METRICS"
            " JOIN (SELECT *, iif(metricName LIKE '%[MHz]', 1e-6, 1) AS unit FROM TARGET_INFO_GPU_METRICS)"
            " USING (typeId, metricId) GROUP BY 1",
        )
    }
    values = ("device", "samples", "avg_value", "min_value", "max_value")
    found = {r["name"]: tuple(r[v] for v in values) for r in ask(METRICS, "counters")}
    assert found.keys() == expected.keys() and len(found) == 30
    for name, row in found.items():
        assert row == pytest.approx(expected[name]), name
    active = "SM Active [Throughput %]"
    assert found[active][4] == 100
    # randn runs for 41 us, so for 4 % of the millisecond that begins at the time of its sample.
    [(start, ns)] = _plain(METRICS, "SELECT start, end - start FROM CUPTI_ACTIVITY_KIND_KERNEL")
    [first] = _read(METRICS, f"SELECT start_ns, value FROM counters WHERE name = '{active}' AND value > 0 LIMIT 1")
    assert first[1] == round(ns / 1e4) and first[0] < start < first[0] + 1e6
    assert found["GPC Clock Frequency [MHz]"][4] == pytest.approx(1980, rel=1e-3)
    assert {r["total_value"] for r in ask(METRICS, "counters")} == {None}


def test_metrics_of_a_program_without_kernels(tmp_path: Path) -> None:
    """As where nsys loses all of them: the process has a CUDA context of device 0."""
    path = tmp_path / "lost.sqlite"
    path.write_bytes(gzip.decompress(METRICS.read_bytes()))
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    db.close()
    rows = "SELECT * EXCLUDE (run_id, run_group) FROM counters ORDER BY ALL"
    assert sql(path, rows) == sql(METRICS, rows)


def test_migrations_of_managed_memory() -> None:
    """The GPU gets 32 MiB twice. The CPU gets 64 KiB (the page of the 8 bytes) twice, and the rest when it sets all.

    `nsys stats -r um_total_sum` has 67.109 and 33.620 MB, 193 faults of the CPU and 126 of the GPU.
    """
    copies = {r["kind"]: (r["calls"], r["bytes"], r["total_ns"]) for r in ask(MANAGED, "memcpy")}
    plain = dict(_plain(MANAGED, "SELECT copyKind, sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1"))
    page = 64 << 10
    assert copies == {
        "Unified HtoD": (3172, 2 * 32 * MIB, plain[11]),
        "Unified DtoH": (194, (32 * MIB - page) + 2 * page, plain[12]),
    }
    # A launch call moves no pages: no row belongs to one.
    assert _read(MANAGED, "SELECT DISTINCT correlation_id FROM memcpys") == [(0,)]


def test_page_faults() -> None:
    [(rows, faults)] = _plain(MANAGED, "SELECT count(*), sum(numberOfPageFaults) FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS")
    found = {r["name"]: (r["rank"], r["device"], r["samples"], r["total_value"]) for r in ask(MANAGED, "counters")}
    assert found == {"GPU page faults": (0, 0, rows, faults), "CPU page faults": (0, None, 193, 193)}
    assert (rows, faults) == (36, 126)


def test_kernels_wait_for_page_faults() -> None:
    """In 14.8 of the 14.9 ms of the kernels the GPU handles faults. The copies alone take 9.9 ms."""
    tables = ("CUDA_UM_GPU_PAGE_FAULT_EVENTS", "CUPTI_ACTIVITY_KIND_MEMCPY")
    spans = sorted(span for table in tables for span in _plain(MANAGED, f"SELECT start, end FROM {table}"))
    covered, until = 0, 0
    for start, end in spans:
        covered += max(0, end - max(start, until))
        until = max(until, end)
    assert covered == 15_903_901
    with analyze.open(MANAGED) as traces:
        [finding] = [a for a in traces.advise().dicts() if a["finding"] == "managed-memory"]
    assert finding["saving_ns"] == covered
    assert finding["evidence"] == "3366 page migrations (96.1 MiB), 126 page faults of GPUs, 15.904 ms in total"


def test_a_call_with_a_backtrace_is_one_call() -> None:
    """mm.py calls cudaLaunchKernel for randn and 20 relus (cuBLAS has another call). One kernel was recorded."""
    calls = "SELECT name, count(*) FROM cuda_calls WHERE name LIKE 'cuda%' AND stack IS NOT NULL GROUP BY name"
    assert dict(_read(BACKTRACES, calls)) == {
        "cudaLaunchKernel": 21, "cudaMalloc": 8, "cudaFree": 1, "cudaDeviceSynchronize": 1,
    }  # fmt: skip
    [launched] = [r for r in ask(BACKTRACES, "launch") if r["device"] is not None]
    # The times of CUPTI's row, which lies within the backtrace's row.
    assert (launched["name"], launched["calls"], launched["kernels"]) == ("cudaLaunchKernel", 1, 1)
    assert launched["call_ns"] == 4_701_518_813 - 4_700_283_420
    [lost] = [r["value"] for r in ask(BACKTRACES, "health") if r["fact"] == "launches without a kernel"]
    assert lost == "20 of 21 launches"


def test_stacks_of_cuda_calls() -> None:
    """Who makes these calls in torch: kernels of ATen, the caching allocator, the device guard, torch.cuda.

    The guard (libc10_cuda, cuCtxGetDevice) runs before each launch: its stack is the one before that of the launch.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for name, stack in _read(BACKTRACES, "SELECT name, stack FROM cuda_calls WHERE name LIKE 'cuda%'"):
        if stack is not None:
            frames = stack.split(" > ")
            assert frames[0] == "[python3.12]" and frames[-2:] == ["[libcuda.so.580.159.04]", "[libcupti.so.12.4]"]
            found[name] |= {f for f in frames[:-2] if f != "[libcudart.so.13]"} & set(frames[-4:])
    assert found["cudaLaunchKernel"] == {"[libtorch_cuda.so]"}
    assert found["cudaMalloc"] == {"[libc10_cuda.so]", "[libcublas.so.13]"}
    assert found["cudaDeviceSynchronize"] == {"[libc10_cuda.so]"}


def test_stacks_of_calls_of_the_system() -> None:
    """Calls of 80 us or more have one (--osrt-threshold); callchainId 0 is none. The innermost function is of libc."""
    calls = _read(BACKTRACES, "SELECT dur_ns, stack FROM os_calls WHERE stack IS NOT NULL")
    assert [(len(calls),)] == _plain(BACKTRACES, "SELECT count(*) FROM OSRT_API WHERE callchainId > 0")
    assert min(ns for ns, _ in calls) > 80_000
    assert {stack.split(" > ")[-1] for _, stack in calls} == {"[libc.so.6]"}


def test_stacks_of_samples() -> None:
    frames = defaultdict(list)
    for number, module in _plain(
        BACKTRACES,
        "SELECT c.id, value FROM SAMPLING_CALLCHAINS c JOIN StringIds s ON s.id = module ORDER BY c.id, -stackDepth",
    ):
        frames[number].append(f"[{module.rpartition('/')[2].strip('[]')}]")
    samples = _plain(BACKTRACES, "SELECT start, globalTid & 0xFFFFFF, id FROM COMPOSITE_EVENTS ORDER BY 1, 2")
    found = _read(BACKTRACES, "SELECT start_ns, tid, function, stack FROM cpu_samples ORDER BY 1, 2")
    assert found == [(at, tid, frames[n][-1], " > ".join(frames[n])) for at, tid, n in samples]


def test_what_threads_did() -> None:
    """Each piece of a thread's time between two events belongs to the state and the innermost call then."""
    expected: Counter[tuple[int, str, str | None]] = Counter()
    for (thread,) in _plain(BACKTRACES, "SELECT DISTINCT globalTid FROM SCHED_EVENTS"):
        switches = dict(_plain(BACKTRACES, f"SELECT start, isSchedIn FROM SCHED_EVENTS WHERE globalTid = {thread}"))
        calls = _plain(
            BACKTRACES,
            "SELECT start, end, value FROM OSRT_API JOIN StringIds ON id = nameId"
            f" WHERE globalTid = {thread} AND eventClass = 27 ORDER BY start, end DESC",
        )
        edges = {at for call in calls for at in call[:2]} | switches.keys()
        state = not switches[min(switches)]  # before its first switch
        for at, end in pairwise(sorted(edges)):
            state = switches.get(at, state)
            within = [name for start, stop, name in calls if start <= at < stop]
            key = (thread & 0xFFFFFF, "on a core" if state else "waiting", within[-1] if within else None)
            expected[key] += end - at
    rows = ask(BACKTRACES, "thread-time", limit=10_000)
    found = {(r["tid"], r["state"], r["os_call"]): r["total_ns"] for r in rows if r["tid"] in (8396, 8418)}
    assert found == {key: ns for key, ns in expected.items() if key[0] in (8396, 8418)}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_folders_of_tables(tmp_path: Path, suffix: str) -> None:
    """nsys 2023.4 writes these columns as booleans into the files of parquetdir and arrowdir."""
    flags = {"isSchedIn", "unresolved", "kernelMode", "thumbCode", "specialEntry", "isGreenContext", "isDiscrete"}
    for (name,) in _plain(BACKTRACES, "SELECT name FROM sqlite_master WHERE type = 'table'"):
        cursor = _database(BACKTRACES).execute(f"SELECT * FROM {name}")
        columns = [c for c, *_ in cursor.description]
        table = pa.table(dict(zip(columns, map(list, zip(*cursor, strict=True)), strict=True)))
        types = [pa.bool_() if c in flags else table.schema.field(c).type for c in columns]
        table = table.cast(pa.schema(zip(columns, types, strict=True)))
        file = tmp_path / f"{name}{suffix}"
        if suffix == ".parquet":
            pq.write_table(table, file)
        else:
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
    for table in ("cuda_calls", "os_calls", "thread_switches", "cpu_samples", "kernels"):
        rows = f"SELECT * EXCLUDE (run_id, run_group) FROM {table} ORDER BY ALL"
        assert sql(tmp_path, rows) == sql(BACKTRACES, rows)
    assert _read(tmp_path, "SELECT warnings FROM runs") == [(None,)]


def test_mpi_calls() -> None:
    """mpi.c makes these calls, recorded by `nsys profile -t mpi mpirun -n 2` on CPUs. Times are from plain SQLite."""
    calls = _read(MPI, "SELECT rank, name, count(*), sum(dur_ns) FROM os_calls GROUP BY ALL")
    both = {"MPI_Init": 1, "MPI_Allreduce": 5, "MPI_Barrier": 1, "MPI_Finalize": 1}
    expected = [both | {"MPI_Send": 3}, both | {"MPI_Recv": 3}]
    assert {(rank, name): n for rank, name, n, _ in calls} == {
        (rank, name): n for rank, counts in enumerate(expected) for name, n in counts.items()
    }
    tables = ("MPI_OTHER_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS")
    events = " UNION ALL ".join(f"SELECT textId, globalTid, start, end FROM {table}" for table in tables)
    rows = _database(MPI).execute(
        f"SELECT rank, value, sum(end - start) FROM ({events}) e JOIN MPI_RANKS USING (globalTid) "
        "JOIN StringIds s ON s.id = textId GROUP BY rank, value"
    )
    assert {(rank, name): ns for rank, name, _, ns in calls} == {(rank, name): ns for rank, name, ns in rows}


@pytest.mark.parametrize(
    ("change", "swapped", "warning"),
    [
        ("UPDATE MPI_RANKS SET rank = 1 - rank", True, ""),
        (
            "UPDATE MPI_RANKS SET rank = 7 - rank",
            True,
            "its processes are numbered in the order of their MPI ranks (6, 7)",
        ),
        (
            "UPDATE MPI_RANKS SET rank = 0",
            False,
            "which process has which rank is guessed from the order of the process",
        ),
        (
            "DELETE FROM MPI_RANKS WHERE rank = 1",
            False,
            "which process has which rank is guessed from the order of the",
        ),
        (
            "UPDATE MPI_RANKS SET rank = 'x'",
            False,
            "which process has which rank is guessed from the order of the process",
        ),
    ],
)
def test_processes_are_numbered_by_mpi_rank(tmp_path: Path, change: str, swapped: bool, warning: str) -> None:
    """In the recording, rank 1 has the larger process id and receives."""
    path = tmp_path / "mpi.sqlite"
    path.write_bytes(gzip.decompress(MPI.read_bytes()))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    receivers = _read(path, "SELECT DISTINCT rank FROM os_calls WHERE name = 'MPI_Recv'")
    assert receivers == [(0 if swapped else 1,)]
    [(warnings,)] = _read(path, "SELECT warnings FROM runs")
    assert warnings.startswith(f"mpi.sqlite: {warning}") and ("process" in warnings) == bool(warning)
