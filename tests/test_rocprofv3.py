"""Recordings of AMD's rocprofv3: `rocprofv3_files` says what they hold."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from rocprofv3_files import ROWS, rocpd, rocprof_json
from support import ask, opened

import analyze
from analyze import sources
from analyze.sources.interface import FileReport


@pytest.fixture(scope="module", params=["db", "json"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rocprofv3")
    if request.param == "db":
        return rocpd(folder / "4242_results.db")
    return rocprof_json(folder / "4242_results.json")


def test_kernels_and_their_launches(recording: Path) -> None:
    [work] = opened(recording).sql(
        "SELECT name, device, stream, dur_ns, grid_x, block_x, shared_mem_bytes FROM kernels"
    ).rows()  # fmt: skip
    assert work == ("gemm(float*)", 1, 3, 500_000, 4, 256, 64)
    rows = opened(recording).sql(
        "SELECT call_name, call_dur_ns, start_ns - call_start_ns, call_tid FROM gpu_work WHERE kind = 'kernel'"
    ).rows()  # fmt: skip
    assert rows == [("hipLaunchKernel", 20_000, 100_000, 4243)]
    [found] = ask(recording, "launch")
    assert (found["calls"], found["avg_queue_delay_ns"]) == (1, 80_000)


def test_copies_and_ranges(recording: Path) -> None:
    traces = opened(recording)
    assert traces.sql("SELECT kind, bytes, dur_ns, device FROM memcpys").rows() == [("HtoD", 4096, 50_000, 1)]
    assert traces.sql("SELECT name, origin, dur_ns FROM ranges").rows() == [("forward", "nvtx", 710_000)]


def test_questions_of_the_gpu_are_answered(recording: Path) -> None:
    """500 us of kernels and 50 us of copies in a span of 700 us."""
    [found] = ask(recording, "gpu-busy")
    assert (found["span_ns"], found["busy_ns"]) == (700_000, 550_000)
    info = opened(recording).info()
    [run] = info.runs
    assert (run.columns["profiler"], run.columns["gpu_name"]) == ("rocprof", "AMD Instinct MI300X")
    assert run.columns["command"] == "python train.py"


def test_processes_of_a_database_are_ranks(tmp_path: Path) -> None:
    second = [{**row, "id": 2, "pid": 2} for row in ROWS["kernel_dispatch"]]
    path = rocpd(tmp_path / "t.db", ROWS | {"kernel_dispatch": ROWS["kernel_dispatch"] + second})
    traces = opened(path)
    assert sorted(traces.sql("SELECT rank, dur_ns FROM kernels").rows()) == [(0, 500_000), (1, 500_000)]
    assert "the ranks of its 2 processes are guessed" in traces.warnings[0]


@pytest.mark.parametrize("process", [None, "2x", 2])
def test_each_row_is_read_once(tmp_path: Path, process: Any) -> None:
    """Its process may be missing, or of another type."""
    second = [{**row, "id": 2, "pid": process, "end": 1_101_000} for row in ROWS["kernel_dispatch"]]
    path = rocpd(tmp_path / "t.db", ROWS | {"kernel_dispatch": ROWS["kernel_dispatch"] + second})
    traces = opened(path)
    assert sorted(traces.sql("SELECT dur_ns FROM kernels").rows()) == [(1_000,), (500_000,)]
    assert traces.sql("SELECT count(*) FROM memcpys").rows() == [(1,)]


def test_a_table_without_processes(tmp_path: Path) -> None:
    copies = [{name: value for name, value in row.items() if name != "pid"} for row in ROWS["memory_copy"]]
    path = rocpd(tmp_path / "t.db", ROWS | {"memory_copy": copies})
    assert opened(path).sql("SELECT dur_ns FROM memcpys").rows() == [(50_000,)]


def test_more_processes_than_a_node_has_are_refused(tmp_path: Path) -> None:
    """Each process is a rank with files of its own."""
    dispatches = [{**ROWS["kernel_dispatch"][0], "id": pid, "pid": pid} for pid in range(1_025)]
    path = rocpd(tmp_path / "t.db", ROWS | {"kernel_dispatch": dispatches})
    (tmp_path / "t.json").write_text(json.dumps({"rocprofiler-sdk-tool": [{}] * 1_025}))
    for file in (path, tmp_path / "t.json"):
        with pytest.raises(analyze.InputError, match=r"it has 1,025 processes; a recording of at most 1,024 is read"):
            analyze.open(file)


@pytest.mark.parametrize("ids", [[1, 5, 5], [1, 5, "5.0"]])
def test_repeated_ids_are_refused(tmp_path: Path, ids: list[Any]) -> None:
    """A join of k rows with the same id, in three tables, would give k^3 events for each dispatch."""
    agents = [{**ROWS["info_agent"][1], "id": id_} for id_ in ids]
    path = rocpd(tmp_path / "t.db", ROWS | {"info_agent": agents})
    with pytest.raises(analyze.InputError, match=r"damaged: the ids of rocpd_info_agent\w* are not distinct integers"):
        analyze.open(path)


def test_missing_tables_and_odd_values(tmp_path: Path) -> None:
    """An older file has no streams and no agents; values may be of any type."""
    dispatch = {"id": 1, "pid": 1, "agent_id": 5, "kernel_id": 9, "queue_id": 8, "start": "100", "end": b"\xff\xfe"}
    path = rocpd(tmp_path / "t.db", {"kernel_dispatch": [dispatch], "info_kernel_symbol": ROWS["info_kernel_symbol"]})
    found = opened(path).sql("SELECT name, device, stream, start_ns, dur_ns FROM kernels").rows()
    assert found == [("gemm(float*)", 0, 8, 100, None)]


def test_a_table_without_a_column_that_names_another_is_read(tmp_path: Path) -> None:
    """Which GPU is then not known."""
    [dispatch] = ROWS["kernel_dispatch"]
    own = {name: value for name, value in dispatch.items() if name != "agent_id"}
    found = opened(rocpd(tmp_path / "t.db", ROWS | {"kernel_dispatch": [own]})).sql(
        "SELECT device, dur_ns FROM kernels"
    )
    assert found.rows() == [(None, 500_000)]


@pytest.mark.parametrize("start", [None, "soon", b"100", 1.5, float("inf")])
def test_rows_without_a_start_are_reported_lost(tmp_path: Path, start: Any) -> None:
    """In SQLite any value may have any type; a text is not the time 0."""
    rows = {table: ROWS[table] + [{**ROWS[table][0], "start": start}] for table in ("kernel_dispatch", "region")}
    result = analyze.ingest(rocpd(tmp_path / "t.db", ROWS | rows), store=tmp_path / "store")
    said = "t.db: records were dropped: a value in them is missing or cannot be: 1 kernel_dispatch, 1 region"
    assert (result.lost, result.warnings) == (2, [said])
    counts = {table: count(tmp_path / "store", table) for table in ("kernels", "memcpys", "cuda_calls", "ranges")}
    assert counts == {"kernels": 1, "memcpys": 1, "cuda_calls": 1, "ranges": 1}


def count(store: Path, table: str) -> int:
    return int(analyze.open(store).sql(f"SELECT count(*) FROM {table}").rows()[0][0])


@pytest.mark.parametrize(
    "damage", [{"start_timestamp": "soon"}, {"end_timestamp": None}, {"start_timestamp": 2**63}, {"thread_id": []}]
)
def test_damaged_records_of_json_are_reported_lost(tmp_path: Path, damage: dict[str, Any]) -> None:
    file = json.loads(rocprof_json(tmp_path / "t.json").read_text())
    records = file["rocprofiler-sdk-tool"][0]["buffer_records"]
    for name in ("kernel_dispatch", "hip_api"):
        records[name].append(records[name][0] | damage)
    (tmp_path / "t.json").write_text(json.dumps(file))
    result = analyze.ingest(tmp_path / "t.json", store=tmp_path / "store")
    said = "t.json: records were dropped: a value in them is missing or cannot be: 1 kernel_dispatch, 1 hip_api"
    assert (result.lost, result.warnings) == (2, [said])
    assert count(tmp_path / "store", "kernels") == count(tmp_path / "store", "cuda_calls") == 1


def test_devices_without_agents_have_one_number_in_all_ranks(tmp_path: Path) -> None:
    """The first process uses agent 6, the second agents 5 and 6."""
    own = [{"id": n, "pid": pid, "agent_id": agent, "start": n, "end": 9} for n, (pid, agent) in enumerate(
        [(1, 6), (2, 5), (2, 6)]
    )]  # fmt: skip
    found = opened(rocpd(tmp_path / "t.db", {"kernel_dispatch": own})).sql("SELECT rank, device FROM kernels").rows()
    assert sorted(found) == [(0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "text", ['{"rocprofiler-sdk-tool": [{"agents": 5}]}', '{"rocprofiler-sdk-tool": [', '{"rocprofiler-sdk-tool": 1}']
)
def test_damaged_json_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    ran = run_cli("info", tmp_path / "t.json")
    [said] = ran.stderr.splitlines()
    assert ran.returncode == 2 and "not JSON of rocprofv3, or damaged" in said


def test_a_truncated_database_is_one_sentence(tmp_path: Path) -> None:
    path = rocpd(tmp_path / "t.db")
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(analyze.InputError, match="truncated"):
        analyze.open(path)


def test_damaged_databases_are_read_or_refused(tmp_path: Path) -> None:
    """Bytes anywhere behind the header may be any others; each file gives rows or one sentence."""
    whole = rocpd(tmp_path / "whole.db").read_bytes()
    outcomes = set()
    for number in range(60):
        damage, data = random.Random(number), bytearray(whole)
        for _ in range(damage.randint(1, 20)):
            data[damage.randrange(100, len(data))] = damage.randrange(256)
        (tmp_path / "t.db").write_bytes(data)
        try:
            rows = sum(batch.num_rows for _, _, batch in sources.read("rocpd", tmp_path / "t.db", FileReport()))
            outcomes.add("read" if rows else "empty")
        except analyze.InputError as e:
            assert str(e).startswith(f"{tmp_path / 't.db'}: ")
            outcomes.add("refused")
    assert outcomes >= {"read", "refused"}
