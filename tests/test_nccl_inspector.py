"""Logs of NCCL Inspector, in the layouts that the plugins of NCCL 2.28 to 2.30 write (4.0) and its README documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_cli
from tests.support import ask, sql

Row = dict[str, Any]
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


def _written(operation: str, seq: int, size: int, time_us: int, algobw: float, busbw: float) -> Row:
    """A record as the plugin of NCCL 2.30.7 wrote it for a call of two ranks: with its version's keys."""
    kind = "p2p" if operation in ("Send", "Recv") else "coll"
    values = {
        "sn": seq, "msg_size_bytes": size, "exec_time_us": time_us, "timing_source": "kernel_gpu",
        "algobw_gbs": algobw, "busbw_gbs": busbw,
    }  # fmt: skip
    peer = {"p2p_peer": 1} if kind == "p2p" else {}
    return {
        "header": header(0, size=2),
        "metadata": _metadata("v4.0", 1),
        f"{kind}_perf": {kind: operation, **peer, **{f"{kind}_{key}": value for key, value in values.items()}},
    }


def test_bytes_are_those_of_the_larger_buffer(tmp_path: Path) -> None:
    """NCCL Inspector logs the size of one rank's part, but computes its algorithm bandwidth from all parts."""
    records = [
        _written("AllReduce", 0, 4194304, 200, 20.971520, 20.971520),
        _written("AllGather", 0, 4194304, 300, 27.962027, 13.981013),
        _written("ReduceScatter", 0, 4194304, 300, 27.962027, 13.981013),
        _written("Broadcast", 0, 8192, 9, 0.910222, 0.910222),
        _written("Send", 1, 4194304, 77, 54.471481, 54.471481),
    ]
    path = _write(tmp_path / "a.log", records)
    speeds = sql(path, "SELECT bytes / dur_ns AS gb_per_s FROM nccl_records ORDER BY record")
    logged = [next(v for k, v in r[key].items() if k.endswith("algobw_gbs")) for r in records for key in list(r)[2:]]
    assert [r["gb_per_s"] for r in speeds] == pytest.approx(logged, rel=1e-5)
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": None}]


def test_sizes_of_uint8(tmp_path: Path) -> None:
    """262,144 elements of uint8 as the plugins of NCCL 2.28.9 and 2.30.7 write them: -262,144 as an unsigned number."""
    records = [
        _written("AllReduce", 0, 18446744073709289472, 50, 368934881474185.75, 368934881474185.75),
        _written("Recv", 1, 18446744073709289472, 33, 558992244657857.1875, 558992244657857.1875),
        # A bandwidth that is possible, of a size that is not.
        _written("AllReduce", 1, 18446744073709289472, 1 << 39, 33554.43, 33554.43),
    ]
    path = _write(tmp_path / "a.log", records)
    rows = sql(path, "SELECT bytes, busbw_gb_per_s FROM nccl_records ORDER BY record")
    assert rows == [{"bytes": 262_144, "busbw_gb_per_s": None}] * 3


def test_operations_without_a_record_are_counted(tmp_path: Path) -> None:
    """AllReduce 0, 2 and 5 are missing, and one send or receive: those have common numbers, from 1."""
    numbers = [("AllReduce", n) for n in (1, 3, 4, 6)] + [("AllGather", n) for n in (0, 1)] + [("Send", 1), ("Recv", 3)]
    path = _write(tmp_path / "a.log", [_written(name, n, 9000, 9, 1.0, 1.0) for name, n in numbers])
    assert len(sql(path, "SELECT * FROM nccl_records")) == 8
    [run] = sql(path, "SELECT warnings FROM runs")
    assert run["warnings"].startswith("a.log: operations without a record, by the numbers of the others: 4. ")


def test_an_unknown_algorithm_is_null(tmp_path: Path) -> None:
    records = [reduce(0, 9, coll_algo="unknown", coll_proto="unknown")]
    path = _write(tmp_path / "a.log", dump(header(0), "v4.4", records))
    assert sql(path, "SELECT algorithm, protocol FROM nccl_records") == [{"algorithm": None, "protocol": None}]
