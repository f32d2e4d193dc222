"""Logs of NCCL Inspector, in the layouts that the plugins of NCCL 2.28 to 2.30 write (4.0) and its README documents.

tests/data/nccl-inspector has logs of tests/data/nccl_calls.py on two H100s, with NCCL 2.28.9. `calls.csv` has the calls
that the program made, and the durations of their kernels, as torch.profiler recorded them with 2.30.7-plain.
"""

from __future__ import annotations

import csv
import json
import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_cli
from tests.support import ROOT, ask, sql

Row = dict[str, Any]
RECORDINGS = ROOT / "tests" / "data" / "nccl-inspector"
GROUPS = ("world", "second pair")
WORLD, PAIR = "0x7f8c496ae9f661", "0x11"


def header(rank: int, comm: str = WORLD, size: int = 4, name: str = "unknown") -> Row:
    return {"id": comm, "comm_name": name, "rank": rank, "n_ranks": size, "nnodes": 1}


def _metadata(version: str, pid: int) -> Row:
    return {
        "inspector_output_format_version": version, "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": 1748030377748202, "hostname": "node", "pid": pid,
    }  # fmt: skip


def reduce(seq: int, time_us: int, size: int = 4_000_000, **more: Any) -> Row:
    """Bus bandwidth of an all_reduce of four ranks, in GB/s: size / time x 2 (4 - 1) / 4."""
    speed = size / time_us / 1000
    return {
        "coll_perf": {
            "coll": "AllReduce", "coll_algo": "RING", "coll_proto": "LL", "coll_sn": seq, "coll_msg_size_bytes": size,
            "coll_exec_time_us": time_us, "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": speed,
            "coll_busbw_gbs": speed * 1.5, **more,
        }
    }  # fmt: skip


def send(seq: int, time_us: int) -> Row:
    return {
        "p2p_perf": {
            "p2p": "Send", "p2p_sn": seq, "p2p_peer": 1, "p2p_msg_size_bytes": 100, "p2p_exec_time_us": time_us,
            "p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": 1.0, "p2p_busbw_gbs": 1.0,
        }
    }  # fmt: skip


def dump(header: Row, version: str, records: list[Row], dropped: int = 0, announced: int | None = None) -> list[Row]:
    """A dump of a communicator: its marker and its records."""
    about = {"header": header, "metadata": _metadata(version, header["rank"])}
    stats = {
        "coll_records": sum("coll_perf" in r for r in records) if announced is None else announced,
        "coll_dropped_total": dropped, "coll_dropped_since_last_dump": dropped,
        "p2p_records": sum("p2p_perf" in r for r in records), "p2p_dropped_total": 0,
        "p2p_dropped_since_last_dump": 0,
    }  # fmt: skip
    return [
        {**about, "dump_stats": stats},
        *(record if version == "v4.3" else {**about, **record} for record in records),
    ]


def _write(path: Path, *dumps: list[Row]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for dump in dumps for line in dump))
    return path


@pytest.mark.parametrize("version", ["v4.2", "v4.3"])
def test_four_ranks_by_hand(tmp_path: Path, version: str) -> None:
    """Two collectives, in which rank 2 is last: 100 us; the others wait 40 us. Two ranks are a group of their own."""
    for rank in range(4):
        time_us = 100 if rank == 2 else 140
        world = dump(header(rank), version, [reduce(seq, time_us) for seq in range(2)])
        pair = dump(header(rank % 2, PAIR, 2, "pair"), version, [reduce(0, 50, 1000), send(1, 7)]) if rank < 2 else []
        _write(tmp_path / f"node-pid{40 - rank}.log", pair, world)
    rows = {(r["communicator"], r["operation"]): r for r in ask(tmp_path, "nccl-log")}
    world_row = rows[WORLD, "AllReduce"]
    columns = ("comm_size", "calls", "logged_ranks", "bytes", "total_ns", "avg_ns", "max_ns")
    assert {k: world_row[k] for k in columns} == {
        "comm_size": 4, "calls": 2, "logged_ranks": 4, "bytes": 8_000_000, "total_ns": 200_000,
        "avg_ns": 100_000, "max_ns": 100_000,
    }  # fmt: skip
    # Three of four ranks wait 40 us, twice.
    assert (world_row["waiting_ns"], world_row["last_rank"]) == (2 * 3 * 40_000 // 4, 2)
    assert world_row["busbw_gb_per_s"] == pytest.approx(4_000_000 / 100_000 * 1.5)
    assert world_row["algorithms"] == "RING LL"
    by_rank = [r for r in ask(tmp_path, "nccl-log", by=("rank",)) if r["communicator"] == WORLD]
    assert {r["rank"]: (r["calls"], r["total_ns"], r["waiting_ns"]) for r in by_rank} == {
        rank: (2, 200_000 if rank == 2 else 280_000, None) for rank in range(4)
    }
    assert (rows["pair", "AllReduce"]["calls"], rows["pair", "AllReduce"]["last_rank"]) == (1, None)
    # Each of both ranks sends once.
    assert (rows["pair", "Send"]["calls"], rows["pair", "Send"]["total_ns"]) == (2, 14_000)
    # The rank of a process is that in the largest communicator.
    sends = "SELECT rank, comm_rank FROM nccl_records WHERE comm_id = '0x11' AND is_p2p ORDER BY rank"
    assert sql(tmp_path, sends) == [
        {"rank": 0, "comm_rank": 0}, {"rank": 1, "comm_rank": 1},
    ]  # fmt: skip
    assert sql(tmp_path, "SELECT ranks, warnings FROM runs") == [{"ranks": 4, "warnings": None}]


def test_sizes_and_starts(tmp_path: Path) -> None:
    start = {"event_trace_ts": {"coll_start_ts": 1752867229235059, "coll_stop_ts": 1752867229235064}}
    path = _write(tmp_path / "a.log", dump(header(0), "v4.3", [reduce(0, 10, 100, **start), reduce(1, 20, 200)]))
    rows = ask(path, "nccl-log", params={"each": "size"})
    assert {r["message_bytes"]: r["total_ns"] for r in rows} == {100: 10_000, 200: 20_000}
    assert [r["start_ns"] for r in sql(path, "SELECT start_ns FROM nccl_records ORDER BY seq")] == [
        1752867229235059_000, None,
    ]  # fmt: skip


@pytest.mark.parametrize("marker", [[], ["{" + json.dumps({"header": header(0, PAIR)})]])
def test_records_after_a_lost_marker_have_no_communicator(tmp_path: Path, marker: list[str]) -> None:
    """The marker of the second dump is missing or damaged: its record must not count for the first communicator."""
    path = _write(tmp_path / "a.log", dump(header(0), "v4.3", [reduce(0, 10)]))
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in [*marker, json.dumps(reduce(1, 20))]))
    assert [r["comm_id"] for r in sql(path, "SELECT comm_id FROM nccl_records")] == [WORLD]
    [run] = sql(path, "SELECT warnings FROM runs")
    assert f"line {3 + len(marker)} is left out: its communicator is not known" in run["warnings"]


def test_one_rank_does_not_know_who_waits(tmp_path: Path) -> None:
    """A call without a bandwidth does not count as one of 0 GB/s: 100 B in 10 us x 2 (4 - 1) / 4 are 0.015 GB/s."""
    records = [reduce(0, 10, 100), reduce(1, 30, 100, coll_busbw_gbs=None)]
    path = _write(tmp_path / "a.log", dump(header(0), "v4.3", records))
    [row] = ask(path, "nccl-log")
    assert (row["total_ns"], row["waiting_ns"], row["last_rank"]) == (40_000, None, None)
    assert row["busbw_gb_per_s"] == pytest.approx(0.015)


def test_lost_records_are_reported(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.log", dump(header(0), "v4.3", [reduce(0, 10)], dropped=5, announced=3))
    with path.open("a") as file:
        file.write('{"coll_perf": {"coll": "AllReduce"}}\n{"coll_perf": \n[1]\n{"other": 1}\n{"proxy_trace": {}}\n')
    assert len(sql(path, "SELECT * FROM nccl_records")) == 1
    [run] = sql(path, "SELECT warnings FROM runs")
    for said in (
        "line 3 is left out: a value is missing or cannot be",
        "2 lines, the first of them 4, are left out: its JSON is damaged",
        "line 6 is left out: no record of NCCL Inspector",
        # Of three that the dump announces, one was read and one is damaged.
        "records that its dumps announce and that are not there: 1",
        "records that NCCL Inspector overwrote before it wrote them: 5",
        "recorded and not read: records of proxy operations: 1",
    ):
        assert said in run["warnings"], run["warnings"]


@pytest.mark.parametrize(("version", "is_known"), [("v4.0", True), ("v4.4", True), ("v4.5", False), ("v5.0", False)])
def test_unknown_versions_are_reported(tmp_path: Path, version: str, is_known: bool) -> None:
    path = _write(tmp_path / "a.log", dump(header(0), version, [{**reduce(0, 10), "header": header(0)}]))
    assert len(sql(path, "SELECT * FROM nccl_records")) == 1
    [run] = sql(path, "SELECT warnings FROM runs")
    said = f"a.log: its format is of version {version}; known are 4.0 to 4.4"
    assert run["warnings"] == (None if is_known else said)


@pytest.mark.parametrize(
    "damage",
    [
        {"coll_exec_time_us": 1 << 62},
        {"coll_msg_size_bytes": -1},
        {"coll_msg_size_bytes": 1 << 65},
        {"coll": "AllGather", "coll_msg_size_bytes": 1 << 50},
        {"coll_sn": "1"},
    ],
)
def test_values_that_cannot_be_are_lost(tmp_path: Path, damage: Row) -> None:
    path = _write(tmp_path / "a.log", dump(header(0), "v4.2", [reduce(0, 10), reduce(1, 10, **damage)]))
    assert [r["total_ns"] for r in ask(path, "nccl-log")] == [10_000]
    [run] = sql(path, "SELECT warnings FROM runs")
    assert run["warnings"] == "a.log: line 3 is left out: a value is missing or cannot be"


def test_a_record_without_a_communicator_is_lost(tmp_path: Path) -> None:
    lines = dump(header(0), "v4.3", [reduce(0, 10)])
    lines[0]["header"] = {"id": "<b>"}
    path = _write(tmp_path / "a.log", lines)
    done = run_cli("query", "nccl-log", path)
    assert done.returncode == 0 and "a value is missing or cannot be" in done.stderr


def _calls(rank: int) -> list[Row]:
    """Calls of the program, with the bytes of the smaller and of the larger buffer."""
    with (RECORDINGS / "calls.csv").open() as file:
        calls = [call for call in csv.DictReader(file) if int(call["rank"]) == rank]
    for call in calls:
        sizes = [int(call[key]) for key in ("input_bytes", "output_bytes") if call[key]]
        call |= {"least": min(sizes), "bytes": max(sizes), "kernel_ns": int(call["kernel_ns"])}
    return calls


def _operations(call: Row) -> list[tuple[str, int]]:
    """The operations of a call that can be logged. An all_to_all sends each of two ranks one half."""
    if call["operation"] == "SendRecv":
        return [("Send", call["bytes"]), ("Recv", call["bytes"])]
    if call["operation"] == "AllToAll":
        return [("Send", call["bytes"] // 2), ("Recv", call["bytes"] // 2)]
    return [(call["operation"], call["bytes"])]


def _logged(path: Path) -> dict[int, list[Row]]:
    """The raw records of each rank."""
    with tarfile.open(path) as archive:
        logs = [archive.extractfile(name).read().splitlines() for name in archive.getnames() if name.endswith(".log")]
    records = [[json.loads(line) for line in log] for log in logs]
    return {log[0]["header"]["rank"]: log for log in records}


COLLECTIVES = {"AllReduce", "Broadcast", "AllGather", "ReduceScatter", "Reduce"}


@pytest.mark.parametrize(
    ("name", "least", "lost", "has_p2p"),
    [
        ("2.30.7-verbose", 0, (0, 0), True),  # NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0
        ("2.30.7-plain", 8192, (0, 0), False),
        ("2.28.9-plain", 0, (26, 25), False),
    ],
)
def test_records_are_the_calls_of_the_program(name: str, least: int, lost: tuple[int, int], has_p2p: bool) -> None:
    """By group, operation and bytes. The plugin of 2.28.9 lost operations of bursts, 142 + 96 - 212 and - 213."""
    path = RECORDINGS / f"{name}.tar.gz"
    found: dict[int, Counter[tuple[str, str, int]]] = {0: Counter(), 1: Counter()}
    comms: list[str] = []
    for row in sql(path, "SELECT rank, comm_id, operation, bytes FROM nccl_records ORDER BY rank, record"):
        if row["comm_id"] not in comms:
            comms.append(row["comm_id"])
        found[row["rank"]][GROUPS[comms.index(row["comm_id"])], row["operation"], row["bytes"]] += 1
    [run] = sql(path, "SELECT warnings FROM runs")
    for rank, lost_here in enumerate(lost):
        calls = [
            (call["group"], *operation)
            for call in _calls(rank)
            for operation in _operations(call)
            if (call["operation"] in COLLECTIVES and call["least"] >= least)
            or (call["operation"] not in COLLECTIVES and has_p2p)
        ]
        missing = Counter(calls) - found[rank]
        assert not found[rank] - Counter(calls)
        assert missing.total() == lost_here
        assert {operation for _, operation, _ in missing} <= {"AllReduce"}
    # 3 repeats of 5 collectives of 1 KiB in 2 groups; in verbose logs what each of 3 x 2 all_to_alls sends to its rank.
    collectives = {"2.30.7-verbose": [], "2.30.7-plain": ["30", "30"], "2.28.9-plain": ["26", "25"]}[name]
    p2p = ["12", "12"] if has_p2p else []
    assert re.findall(r"log: collectives without a record, by the numbers of the others: (\d+)\.", run["warnings"]) == (
        collectives
    )
    assert re.findall(r"log: sends and receives without a record, .*?: (\d+)\.", run["warnings"]) == p2p
    channels = [str(len(log)) for log in _logged(path).values()] if name.endswith("verbose") else []
    assert re.findall(r"times of each channel \(kernel_events\) of operations: (\d+)", run["warnings"]) == channels


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("group", GROUPS)
def test_durations_are_those_of_the_kernels(rank: int, group: str) -> None:
    """3 to 6 us shorter, until the all_to_alls. After the three, a call has the duration of the third before it."""
    kernels: dict[str, list[int]] = {}
    compared = 0
    calls = [call for call in _calls(rank) if call["group"] == group]
    rows = sql(
        RECORDINGS / "2.30.7-plain.tar.gz",
        f"SELECT comm_id, operation, seq, dur_ns FROM nccl_records WHERE rank = {rank} ORDER BY record",
    )
    comms = list(dict.fromkeys(row["comm_id"] for row in rows))
    durations = {(r["operation"], r["seq"]): r["dur_ns"] for r in rows if r["comm_id"] == comms[GROUPS.index(group)]}
    first_all_to_all = next(n for n, call in enumerate(calls) if call["operation"] == "AllToAll")
    for n, call in enumerate(calls):
        of_operation = kernels.setdefault(call["operation"], [])
        logged = durations.get((call["operation"], len(of_operation)))
        of_operation.append(call["kernel_ns"])
        if n < first_all_to_all and logged is not None:
            assert 3_000 < call["kernel_ns"] - logged < 6_000, call
            compared += 1
    assert compared == 3 * 3 * 5
    reduces = kernels["AllReduce"]
    assert len(reduces) == 71
    for seq in range(21, 71):
        assert 3_000 < reduces[seq - 3] - durations["AllReduce", seq] < 6_000


@pytest.mark.parametrize("name", ["2.30.7-verbose", "2.30.7-plain", "2.28.9-plain"])
def test_a_rank_that_is_late(name: str) -> None:
    """Rank 1 sleeps 20 ms before each of three all_reduces of 2 MiB: rank 0 waits, on average of both ranks 30 ms."""
    rows = ask(RECORDINGS / f"{name}.tar.gz", "nccl-log", params={"each": "size"})
    late = [row for row in rows if (row["operation"], row["message_bytes"]) == ("AllReduce", 2 << 20)]
    assert [(row["calls"], row["last_rank"]) for row in late] == [(3, 1), (3, 1)]
    assert all(30e6 < row["waiting_ns"] < 31e6 for row in late)


def test_durations_that_cannot_be_are_left_out() -> None:
    """Rank 0 logs 20 ms for three all_reduces of each burst, that it dumped 1 ms after their launch."""
    path = RECORDINGS / "2.30.7-verbose.tar.gz"
    impossible = [
        perf["coll_sn"]
        for record in _logged(path)[0]
        if (perf := record.get("coll_perf"))
        and perf["coll_exec_time_us"]
        > record["metadata"]["dump_timestamp_us"] - perf["event_trace_ts"]["coll_start_ts"]
    ]
    assert impossible == [21, 22, 23] * 2
    rows = sql(path, "SELECT rank, seq, busbw_gb_per_s FROM nccl_records WHERE dur_ns IS NULL ORDER BY record")
    assert rows == [{"rank": 0, "seq": seq, "busbw_gb_per_s": None} for seq in impossible]
    rows = ask(path, "nccl-log", params={"each": "size"})
    bursts = [row for row in rows if (row["operation"], row["message_bytes"]) == ("AllReduce", 64 << 10)]
    assert [row["calls"] for row in bursts] == [53, 53]
    assert all(row["max_ns"] < 10_000 and row["waiting_ns"] < 2_000_000 for row in bursts)
    [run] = sql(path, "SELECT warnings FROM runs")
    assert re.findall(r"(\S+): durations that are longer .*?: (\d+)\.", run["warnings"]) == [("vm-pid2341.log", "6")]


def test_a_call_has_no_duration_without_that_of_each_rank(tmp_path: Path) -> None:
    """Rank 1 was last, but its duration cannot be: it is not known that the call took 20 us, and not 90 us."""
    trace = {"event_trace_ts": {"coll_start_ts": 1748030377748202 - 100, "coll_stop_ts": 1748030377748202 - 98}}
    for rank, durations in enumerate([(90, 30), (200, 10)]):
        records = [reduce(seq, time_us, **trace) for seq, time_us in enumerate(durations)]
        _write(tmp_path / f"{rank}.log", dump(header(rank, size=2), "v4.3", records))
    [row] = ask(tmp_path, "nccl-log")
    columns = ("calls", "total_ns", "waiting_ns", "last_rank", "busbw_gb_per_s")
    assert [row[column] for column in columns] == [2, 10_000, 10_000, 1, pytest.approx(600)]


def test_uint8_has_a_byte_per_element() -> None:
    """NCCL Inspector writes minus the elements of uint8 as an unsigned number, and bandwidths of it."""
    path = RECORDINGS / "2.30.7-verbose.tar.gz"
    raw = [r["coll_perf"]["coll_msg_size_bytes"] for log in _logged(path).values() for r in log if "coll_perf" in r]
    assert sum(size > 1 << 63 for size in raw) == 12
    assert [c["bytes"] for rank in (0, 1) for c in _calls(rank) if c["dtype"] == "uint8"] == [262_144] * 24
    counted = "SELECT count(*) AS n, count(busbw_gb_per_s) AS speeds FROM nccl_records"
    assert sql(path, f"{counted} WHERE operation = 'AllReduce' AND bytes = 262144") == [{"n": 24, "speeds": 12}]


def test_a_bandwidth_of_minus_the_bytes_is_null(tmp_path: Path) -> None:
    """In 2^39 us the bandwidth of 2^64 B is one that could be."""
    records = [reduce(0, 1 << 39, coll_msg_size_bytes=(1 << 64) - 262_144, coll_busbw_gbs=33554.43)]
    path = _write(tmp_path / "a.log", dump(header(0), "v4.3", records))
    assert sql(path, "SELECT bytes, busbw_gb_per_s FROM nccl_records") == [{"bytes": 262_144, "busbw_gb_per_s": None}]


def test_an_unknown_algorithm_is_null(tmp_path: Path) -> None:
    records = [reduce(0, 9, coll_algo="unknown", coll_proto="unknown")]
    path = _write(tmp_path / "a.log", dump(header(0), "v4.4", records))
    assert sql(path, "SELECT algorithm, protocol FROM nccl_records") == [{"algorithm": None, "protocol": None}]
