"""`analyze trace` writes a Chrome trace that reads back as the same rows."""

from __future__ import annotations

import gzip
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, run_cli
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, write_trace

import analyze
from analyze.errors import InputError

TABLES = {
    "kernels": "name, start_ns, dur_ns, device, stream, correlation_id, op_id, grid_x, grid_y, grid_z, block_x,"
    " block_y, block_z, registers, shared_mem_bytes, blocks_per_sm, occupancy_pct, graph_id, graph_node_id,"
    " annotation, collective, in_elems, out_elems, dtype, group_size, group_name, group_ranks, group_desc, seq, peer,"
    " in_splits, out_splits",
    "memcpys": "kind, src_memory, dst_memory, src_device, dst_device, bytes, start_ns, dur_ns, device, stream,"
    " correlation_id, op_id",
    "memsets": "dst_memory, bytes, start_ns, dur_ns, device, stream, correlation_id, op_id",
    "cuda_calls": "api, name, start_ns, dur_ns, pid, tid, correlation_id, op_id",
    "cpu_ops": "name, start_ns, dur_ns, pid, tid, op_id, sequence_number, input_dims, input_types, concrete_inputs",
    # Overhead without a thread is drawn on one.
    "ranges": "origin, name, start_ns, dur_ns, op_id, device, stream,"
    " CASE WHEN origin <> 'overhead' THEN tid END AS tid",
    "memory_events": "pid, device_type, device, start_ns, addr, bytes, allocated_bytes, reserved_bytes",
}


def write(source: Path, target: Path, where: str | None = None, **options: Any) -> Path:
    analyze.open(source, where=where).trace(target, **options)
    return target


def load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_float=Decimal)


def events(path: Path, ph: str) -> list[dict[str, Any]]:
    return [e for e in load(path)["traceEvents"] if e["ph"] == ph]


@pytest.mark.parametrize("sample", ["resnet18-1gpu", "alexnet-dp2", "vgg16-fp32", "resnet18-ncu"])
def test_exported_tables_of_a_rank_read_back(tmp_path: Path, sample: str) -> None:
    """Column by column, row by row; times to the nanosecond."""
    torch = "profiler = 'torch'"
    written = write(SAMPLES / sample, tmp_path / "out.json.gz", where=torch)
    for table, columns in TABLES.items():
        select = f"SELECT {columns} FROM {table} ORDER BY ALL"
        assert sql(written, select) == sql(SAMPLES / sample, select, where=torch), table


def test_exported_ranks_of_a_run_read_back(tmp_path: Path) -> None:
    source = SAMPLES / "resnet18-ddp2"
    written = write(source, tmp_path / "out.json.gz")
    select = "SELECT name, start_ns, dur_ns, device, stream, correlation_id FROM kernels ORDER BY ALL"
    assert sql(written, select) == sql(source, select)
    one = write(source, tmp_path / "one.json", where="rank = 1")
    assert load(one)["distributedInfo"]["rank"] == 1
    select = select.replace("SELECT", "SELECT rank,")
    assert sql(one, select) == analyze.open(source).where("rank = 1").sql(select).dicts()


def test_nsight_systems_becomes_a_chrome_trace(tmp_path: Path) -> None:
    source, nsys = SAMPLES / "alexnet-dp2", "profiler = 'nsys'"
    written = write(source, tmp_path / "out.json", where=nsys)
    select = "SELECT name, start_ns, dur_ns, device, stream, correlation_id FROM kernels ORDER BY ALL"
    assert sql(written, select) == analyze.open(source).where(nsys).sql(select).dicts()


def test_ranges_that_overlap_python_frames_keep_their_operators(tmp_path: Path) -> None:
    # A frame f [0, 50) and a range r [20, 100) overlap in part, so the range is drawn on a second thread. It holds two
    # operators, [30, 40) and [60, 90); the second launches a kernel. One frame, [55, 95), lies in the range and holds
    # the second operator.
    source = write_trace(
        tmp_path / "t.json",
        [
            event("python_function", "f", 0, 50, **{"Python id": 1}),
            event("user_annotation", "r", 20, 80, **{"External id": 1}),
            event("cpu_op", "aten::a", 30, 10, **{"External id": 2}),
            event("python_function", "g", 55, 40, **{"Python id": 2}),
            event("cpu_op", "aten::b", 60, 30, **{"External id": 3}),
            launch(65, 1, 5, **{"External id": 3}),
            kernel("k", 100, 7, correlation=1, **{"External id": 3}),
        ],
    )
    written = write(source, tmp_path / "out.json")
    assert len({e["tid"] for e in events(written, "X") if e["cat"] in ("user_annotation", "cpu_op")}) == 2
    for query, params in (("op-tree", {}), ("ops", {"python": "yes"}), ("module-tree", {"tree": "stack"})):
        assert ask(written, query, params=params) == ask(source, query, params=params)
    paths = {r["path"]: r["self_gpu_ns"] for r in ask(written, "op-tree")}
    assert paths == {"r": 0, "r > aten::a": 0, "r > aten::b": 7000}


def hand_made(path: Path) -> Path:
    # Launch at 10 (1 us), its kernel at 20 for 5 us, in which one on another stream runs for 2 us (22 to 24); a copy of
    # 4000 B in 2 us = 2 GB/s at 30.
    return write_trace(
        path,
        [
            event("cpu_op", 'say "k"', 9, 3, 500, 501, **{"External id": 3, "Input Dims": [[2, 3], []]}),
            event("cuda_runtime", "cudaLaunchKernel", 10, 1, 500, 501, correlation=7, **{"External id": 3}),
            kernel("k", 20, 5, correlation=7, grid=[1, 2, 3], block=[32, 1, 1]),
            kernel("other", 22, 2, stream=8),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 30, 2, 0, 7, device=0, stream=7, bytes=4000),
        ],
    )


def test_times_count_from_the_first_event_with_three_decimals(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "t.json", [kernel("k", 1_000_000.001, 2.5), kernel("z", 1_000_007.25, 0)])
    written = write(source, tmp_path / "out.json")
    text = written.read_text()
    assert '"ts":0.000,"dur":2.500' in text and '"ts":7.249,"dur":0.000' in text
    assert load(written)["baseTimeNanoseconds"] == 1_000_000_001


def test_names_arrows_and_arguments(tmp_path: Path) -> None:
    written = write(hand_made(tmp_path / "t.json"), tmp_path / "out.json")
    names = {(e["name"], e["pid"], e["tid"]): e["args"].get("name") for e in events(written, "M")}
    assert names["process_name", 500, 0] == "rank 0 CPU process" and names["process_name", 0, 0] == "rank 0 GPU"
    assert names["thread_name", 500, 501] == "thread" and names["thread_name", 0, 8] == "stream"
    [begin], [end] = events(written, "s"), events(written, "f")
    assert (begin["pid"], begin["tid"], begin["ts"]) == (500, 501, 1) and begin["id"] == end["id"]
    assert (end["pid"], end["tid"], end["ts"], end["bp"]) == (0, 7, 11, "e")
    [op] = [e for e in events(written, "X") if e["cat"] == "cpu_op"]
    assert op["name"] == 'say "k"' and op["args"]["Input Dims"] == [[2, 3], []]
    # The launched kernel carries its grid; it is on the GPU's process.
    [k] = [e for e in events(written, "X") if e["name"] == "k"]
    assert (k["args"]["grid"], k["args"]["correlation"], k["dur"]) == ([1, 2, 3], 7, 5)


def series(path: Path, name: str, key: str) -> list[tuple[Decimal, int]]:
    return [(e["ts"], e["args"][key]) for e in events(path, "C") if e["name"] == name and key in e["args"]]


def test_counters_by_hand(tmp_path: Path) -> None:
    written = write(hand_made(tmp_path / "t.json"), tmp_path / "out.json")
    # Times from the first event, which is at 9 us. Queued from the call (10) to the start (20).
    assert series(written, "queue depth", "stream 7") == [(1, 1), (11, 0)]
    assert series(written, "running", "on GPU") == [(11, 1), (13, 2), (15, 1), (16, 0), (21, 1), (23, 0)]
    assert series(written, "copy GB/s", "HtoD") == [(21, 2), (23, 0)]
    assert not events(write(hand_made(tmp_path / "t.json"), tmp_path / "bare.json", counters=False), "C")


def test_memory_is_a_counter(tmp_path: Path) -> None:
    written = write(SAMPLES / "resnet18-1gpu", tmp_path / "out.json.gz")
    values = [v for _, v in series(written, "allocated MB", "cuda")]
    [row] = sql(
        SAMPLES / "resnet18-1gpu",
        "SELECT max(allocated_bytes) AS peak FROM memory_events WHERE device_type = 'cuda'",
    )
    assert max(values) * 1_000_000 == row["peak"]


def test_memory_of_a_snapshot_is_a_counter(tmp_path: Path) -> None:
    """torch counted what was allocated (log.txt); its error said that 880 KiB more were reserved."""
    sample = SAMPLES / "out-of-memory"
    words = (sample / "torch" / "log.txt").read_text().split()
    written = write(sample, tmp_path / "out.json", where="run_id LIKE '%.torch'")
    allocated, reserved = (series(written, name, "snapshot") for name in ("allocated MB", "reserved MB"))
    assert max(v for _, v in allocated) * 1_000_000 == int(words[3])
    assert allocated[-1][1] * 1_000_000 == int(words[1])
    assert "880.00 KiB is reserved by PyTorch but unallocated" in " ".join(words)
    assert (reserved[-1][1] - allocated[-1][1]) * 1_000_000 == 880 * 1024
    # On the clock of the trace: torch wrote the begin of the step into both, in whole microseconds into the snapshot.
    snapshot = pickle.loads((sample / "torch" / "rank-0.memory_snapshot.pickle").read_bytes())
    [step_us] = [a["time_us"] for a in snapshot["external_annotations"] if (a["stage"], a["name"]) == STEP]
    base_ns = load(written)["baseTimeNanoseconds"]
    [step] = [e for e in events(written, "X") if e["name"] == STEP[1] and e["cat"] == "user_annotation"]
    assert abs(base_ns + step["ts"] * 1000 - step_us * 1000) < 50_000
    frees = [e["time_us"] * 1000 for e in snapshot["device_traces"][0] if e["action"] == "free_requested"]
    assert base_ns + allocated[-1][0] * 1000 == max(frees)


STEP = ("START", "ProfilerStep#8")


def test_large_numbers_are_exact(tmp_path: Path) -> None:
    """Many ranks with the same numbers each, and copies of more than 2^63 / 10^9 bytes."""
    for rank in (0, 1_000_000):
        copy = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 10, 1_000_000, 0, 7, bytes=20_000_000_000)
        world = {"rank": rank, "world_size": 1_000_001}
        work = [launch(1, 1), kernel("k", 5, 1, correlation=1), copy]
        write_trace(tmp_path / "run" / f"rank-{rank}.json", work, distributedInfo=world)
    written = write(tmp_path / "run", tmp_path / "out.json.gz")
    processes = {e["pid"]: e["args"]["name"] for e in events(written, "M") if e["name"] == "process_name"}
    # GPU 0 and process 1 of rank 0 have their numbers; those of the other rank are taken.
    assert processes == {
        0: "rank 0 GPU", 1: "rank 0 CPU process", 2: "rank 1000000 CPU process 1 track", 3: "rank 1000000 GPU 0 track"
    }  # fmt: skip
    # 20 GB in a second, on each of the ranks.
    assert [v for _, v in series(written, "copy GB/s", "HtoD")] == [20, 0, 20, 0]


def test_time_window_of_a_trace(tmp_path: Path) -> None:
    # 13 to 15 us after the first event: both kernels reach into it (11 to 16, 13 to 15); the call and the copy do not.
    written = write(hand_made(tmp_path / "t.json"), tmp_path / "out.json", from_ms=0.0125, to_ms=0.015)
    assert [e["name"] for e in events(written, "X")] == ["k", "other"]
    assert not events(written, "s")
    # At the start of the window one kernel runs already.
    assert series(written, "running", "on GPU") == [(Decimal("12.5"), 1), (13, 2)]
    with pytest.raises(InputError, match="is not before"):
        write(hand_made(tmp_path / "t.json"), tmp_path / "out.json", from_ms=2, to_ms=1)


def test_process_rows_are_not_gpu_rows(tmp_path: Path) -> None:
    # In a container the process can be number 1, as GPU 1 is.
    source = write_trace(tmp_path / "t.json", [launch(0, 1), kernel("k", 5, 1, device=1, correlation=1)])
    written = write(source, tmp_path / "out.json")
    pids = {e["cat"]: e["pid"] for e in events(written, "X")}
    assert pids["cuda_runtime"] == 1 and pids["kernel"] != 1
    assert sql(written, "SELECT device, stream FROM kernels") == [{"device": 1, "stream": 7}]


def test_trace_command(tmp_path: Path) -> None:
    target = tmp_path / "out.json.gz"
    result = run_cli("trace", hand_made(tmp_path / "t.json"), "-o", target)
    assert result.returncode == 0 and "5 events, 1 arrows" in result.stdout
    several = run_cli("trace", SAMPLES, "-o", target)
    assert several.returncode == 2 and "a trace has one run" in several.stderr
    assert len(complaints(several)) == 1
    bad = run_cli("trace", hand_made(tmp_path / "t.json"), "-o", "/no/such/folder/x.json")
    assert bad.returncode == 2 and "cannot be written" in bad.stderr
    nothing = run_cli("trace", SAMPLES / "matmuls", "-o", target)
    assert nothing.returncode == 2 and "has no timed events" in nothing.stderr


def test_export_is_deterministic(tmp_path: Path) -> None:
    one, two = (
        write(SAMPLES / "vgg16-fp32", tmp_path / n / "out.json.gz")
        for n in ("a", "b")
        if (tmp_path / n).mkdir() is None
    )
    assert one.read_bytes() == two.read_bytes()


def test_critical_path_is_drawn_over_the_trace(tmp_path: Path) -> None:
    """Its pieces fill the time from the first event to the last, and the rows read back are still the same."""
    source = SAMPLES / "resnet18-1gpu"
    plain = write(source, tmp_path / "plain.json", counters=False)
    drawn = write(source, tmp_path / "drawn.json", counters=False, critical_path=True)
    pieces = [e for e in events(drawn, "X") if e["cat"] == "critical_path"]
    rows = analyze.open(source).query("critical-path").dicts()
    assert sum(round(p["dur"] * 1000) for p in pieces) == sum(r["total_ns"] for r in rows) > 0
    ends = [p["ts"] + p["dur"] for p in pieces]
    assert [p["ts"] for p in pieces[1:]] == ends[:-1]
    for table in TABLES:
        select = f"SELECT {TABLES[table]} FROM {table} ORDER BY ALL"
        assert sql(drawn, select) == sql(plain, select)


def test_exported_critical_path_by_hand(tmp_path: Path) -> None:
    # The CPU works from 0 and launches at 2 to 4; the kernel starts at 10 and ends at 30, where the trace ends: 0-4 on
    # the CPU, 4-10 waiting for the launch, 10-30 the kernel. The path changes place once or twice, always to the GPU.
    trace = write_trace(
        tmp_path / "t.json", [event("cpu_op", "op", 0, 5), launch(2, 1, 2), kernel("k", 10, 20, correlation=1)]
    )
    drawn = write(trace, tmp_path / "out.json", critical_path=True)
    pieces = [e for e in events(drawn, "X") if e["cat"] == "critical_path"]
    # What the thread did is the operator's, though the launch call ran inside it. Two places, two lanes.
    assert [(p["name"], p["ts"], p["dur"], p["tid"]) for p in pieces] == [
        ("cpu: op", 0, 4, 1),
        ("launch: cudaLaunchKernel", 4, 6, 2),
        ("kernel: k", 10, 20, 2),
    ]
    assert pieces[2]["args"] == {"kind": "kernel", "place": "rank 0 GPU 0 stream 7"}
