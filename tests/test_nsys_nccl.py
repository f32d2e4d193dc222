"""NCCL's payloads in exports of Nsight Systems: sizes of messages, communicators and peers.

The schemas are those of NCCL 2.28 (src/include/nvtx_payload_schemas.h), the columns those of exports of nsys 2026. The
numbers of the types are NVTX_PAYLOAD_ENTRY_TYPE_* of NVTX's nvToolsExtPayload.h.
"""

from __future__ import annotations

import base64
import sqlite3
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import ask, sql
from tests.test_nsys_jobs import ALL_REDUCE, report
from tests.test_nsys_layouts import Row, thread

INT, UINT64, SIZE = 5, 18, 22
COMMUNICATOR = (UINT64, "NCCL communicator ID", None)  # the first offset is not in the export
FIELDS = {
    0: [COMMUNICATOR, (INT, "No. of ranks", 8), (INT, "Rank", 12), (INT, "CUDA device", 16)],
    4: [COMMUNICATOR, (SIZE, "Message size [bytes]", 8)],
    5: [COMMUNICATOR, (SIZE, "Message size [bytes]", 8), (900, "Reduction operation", 16)],
    9: [COMMUNICATOR, (SIZE, "Message size [bytes]", 8), (INT, "Peer rank", 16)],
}
STATIC = 1 << 24
FIELDS[2], FIELDS[7] = FIELDS[0], FIELDS[5]
ENTRIES: list[Row] = [
    (2, STATIC + schema, at, kind, name, offset)
    for schema, fields in FIELDS.items()
    for at, (kind, name, offset) in enumerate(fields)
]
GROUP = 0xABCDEF0123456789
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)"
NAMES = [
    "ncclCommInitRank", "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv",
    "ncclGroupStart", "ncclGroupEnd", "ncclCommDestroy",
]  # fmt: skip


def payload(schema: int, layout: str, *values: int) -> bytes:
    content = struct.pack("<" + layout, *values)
    return struct.pack("<QQQQ", 2, STATIC + schema, len(content), 32 + len(content)) + content


def ranges(pid: int, calls: list[tuple[int, int, str, bytes | None]]) -> list[Row]:
    """Ranges of the thread that launches; times in us."""
    return [
        (start * 1000, end * 1000, 59, thread(pid, pid), 100 + NAMES.index(name), 2, data)
        for start, end, name, data in calls
    ]


def export(path: Path, kernels: list[tuple[int, int, int, int]], events: list[Row], name: str = ALL_REDUCE) -> Path:
    strings: list[Row] = [(100 + i, name) for i, name in enumerate(NAMES)]
    more: dict[str, tuple[str, list[Row]]] = {
        "StringIds": ("id value", strings),
        "NVTX_EVENTS": ("start end eventType globalTid textId domainId binaryData", events),
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": ("domainId schemaId idx type name offset", ENTRIES),
    }
    return report(path, kernels, name=name, more=more)


def init(pid: int, rank: int, size: int = 2) -> list[Row]:
    return ranges(pid, [(1, 2, "ncclCommInitRank", payload(0, "Qiii4x", GROUP, size, rank, 0))])


def two_ranks(path: Path, ranges_of: list[tuple[int, int, str, bytes | None]], name: str = ALL_REDUCE) -> Path:
    """Two processes, each with a GPU, whose kernel at 100 us is launched at 50 us."""
    events = [row for pid in (1, 2) for row in (*init(pid, pid - 1), *ranges(pid, ranges_of))]
    return export(path, [(1, 0, 100, 200), (2, 1, 101, 200)], events, name)


@pytest.mark.parametrize("grouped", [False, True])
def test_sizes_and_groups_of_collectives(tmp_path: Path, grouped: bool) -> None:
    data = payload(5, "QQi4x", GROUP, 4 << 20, 0)
    calls: list[tuple[int, int, str, bytes | None]] = [(40, 60, "ncclAllReduce", data)]
    if grouped:  # torch launches within ncclGroupEnd
        calls = [
            (30, 31, "ncclGroupStart", None), (35, 40, "ncclAllReduce", data), (45, 60, "ncclGroupEnd", None),
        ]  # fmt: skip
    path = two_ranks(tmp_path / "r.sqlite", calls)
    [row] = ask(path, "collectives")
    # The faster rank takes 99 us for 4 MiB; the bus bandwidth of an all_reduce of two ranks is the same.
    found = [row[c] for c in ("collective", "status", "calls", "ranks", "bytes", "total_ns")]
    assert found == ["all_reduce", "matched", 1, 2, 4 << 20, 99_000]
    assert row["busbw_gb_per_s"] == pytest.approx((4 << 20) / 99_000)
    kernels = sql(path, "SELECT DISTINCT group_name, group_ranks, group_size FROM kernels")
    assert kernels == [{"group_name": "0xabcdef0123456789", "group_ranks": "[0, 1]", "group_size": 2}]


# As NCCL 2.28.9 wrote them on two H100s, in the JSON export of nsys 2023.4 (its export to SQLite has no payloads):
# all_reduce, all_gather and reduce_scatter of 2^20 floats, and a send to rank 1 of 1000 bfloat16s. The last bytes of
# the first and of the last one are padding. The last line is of ncclCommDestroy, which has the layout of schema 0.
RECORDED = [
    (5, "ncclAllReduce", "aHV6mgL9/HIAAEAAAAAAAAAAAAD8fwAA", (1 << 22, 1 << 22)),
    (4, "ncclAllGather", "aHV6mgL9/HIAAEAAAAAAAA==", (1 << 22, 1 << 23)),
    (7, "ncclReduceScatter", "aHV6mgL9/HIAAEAAAAAAAAAAAAAAAAAA", (1 << 23, 1 << 22)),
    (9, "ncclSend", "aHV6mgL9/HLQBwAAAAAAAAEAAADRAwAA", (2000, 2000)),
]
DESTROYED = ["aHV6mgL9/HICAAAAAAAAAAAAAAAAAAAA", "aHV6mgL9/HICAAAAAQAAAAEAAAAAAAAA"]
"""By rank."""


@pytest.mark.parametrize(("schema", "function", "recorded", "sizes"), RECORDED)
def test_payloads_of_a_recording(
    tmp_path: Path, schema: int, function: str, recorded: str, sizes: tuple[int, int]
) -> None:
    def with_header(schema: int, text: str) -> bytes:
        content = base64.b64decode(text)
        return struct.pack("<QQQQ", 2, STATIC + schema, len(content), 32 + len(content)) + content

    events: list[Row] = []
    for pid in (1, 2):
        events += ranges(pid, [(40, 60, function, with_header(schema, recorded))])
        events += ranges(pid, [(300, 310, "ncclCommDestroy", with_header(2, DESTROYED[pid - 1]))])
    path = export(tmp_path / "r.sqlite", [(1, 0, 100, 200), (2, 1, 101, 200)], events)
    [row] = sql(path, "SELECT DISTINCT in_elems, out_elems, group_name, group_ranks, peer FROM kernels")
    assert row == {
        "in_elems": sizes[0], "out_elems": sizes[1], "group_name": "0x72fcfd029a7a7568", "group_ranks": "[0, 1]",
        "peer": 1 if function == "ncclSend" else None,
    }  # fmt: skip


def test_an_all_gather_receives_the_message_of_each_rank(tmp_path: Path) -> None:
    calls = [(40, 60, "ncclAllGather", payload(4, "QQ", GROUP, 1000))]
    path = two_ranks(tmp_path / "r.sqlite", calls, ALL_REDUCE.replace("AllReduce_Sum_f32", "AllGather"))
    assert sql(path, "SELECT DISTINCT in_elems, out_elems FROM kernels") == [{"in_elems": 1000, "out_elems": 2000}]


def test_pairs_of_sends_and_receives(tmp_path: Path) -> None:
    events = [*init(1, 0), *init(2, 1)]
    events += ranges(1, [(40, 60, "ncclSend", payload(9, "QQi4x", GROUP, 512, 1))])
    events += ranges(2, [(40, 60, "ncclRecv", payload(9, "QQi4x", GROUP, 512, 0))])
    path = export(tmp_path / "r.sqlite", [(1, 0, 100, 200), (2, 1, 101, 200)], events, SEND_RECV)
    rows = sql(path, "SELECT rank, source, destination, bytes FROM collective_kernels ORDER BY rank")
    assert [tuple(r.values()) for r in rows] == [(0, 0, 1, 512), (1, 0, 1, 512)]


def test_several_calls_of_a_group_in_one_kernel(tmp_path: Path) -> None:
    """Two all_reduces of a group run as one kernel; an all_reduce and a send cannot be told apart."""
    one, other = (payload(5, "QQi4x", GROUP, size, 0) for size in (100, 200))
    calls: list[tuple[int, int, str, bytes | None]] = [
        (30, 31, "ncclAllReduce", one), (32, 33, "ncclAllReduce", other), (45, 60, "ncclGroupEnd", None),
    ]  # fmt: skip
    path = two_ranks(tmp_path / "same.sqlite", calls)
    assert sql(path, "SELECT DISTINCT in_elems FROM kernels") == [{"in_elems": 300}]
    calls[1] = (32, 33, "ncclSend", payload(9, "QQi4x", GROUP, 512, 1))
    path = two_ranks(tmp_path / "other.sqlite", calls)
    assert sql(path, "SELECT DISTINCT in_elems, collective FROM kernels") == [{"in_elems": None, "collective": None}]
    [run] = sql(path, "SELECT warnings FROM runs")
    assert "2 kernels of groups of several NCCL calls have no sizes of messages" in run["warnings"]


@pytest.mark.parametrize(
    "damage", [b"", b"short", payload(8, "QQ", GROUP, 5), payload(5, "Q", GROUP), b"\xff" * 64], ids=str
)
def test_damaged_payloads(tmp_path: Path, damage: bytes) -> None:
    path = two_ranks(tmp_path / "r.sqlite", [(40, 60, "ncclAllReduce", damage)])
    assert sql(path, "SELECT count(*) AS n, count(in_elems) AS known FROM kernels") == [{"n": 2, "known": 0}]


def test_an_impossible_communicator(tmp_path: Path) -> None:
    """A communicator of 2^31 - 1 ranks: they are not listed."""
    data = payload(5, "QQi4x", GROUP, 1 << 63, 0)
    events = [*init(1, 0, 2**31 - 1), *ranges(1, [(40, 60, "ncclAllReduce", data)])]
    path = export(tmp_path / "r.sqlite", [(1, 0, 100, 200)], events)
    [row] = sql(path, "SELECT in_elems, group_ranks, group_size FROM kernels")
    assert row == {"in_elems": None, "group_ranks": None, "group_size": 2**31 - 1}


def test_payloads_of_a_folder_of_parquet_files(tmp_path: Path) -> None:
    """There, nsys declares bytes as text."""
    calls = [(40, 60, "ncclAllReduce", payload(5, "QQi4x", GROUP, 4 << 20, 0))]
    two_ranks(tmp_path / "r.sqlite", calls)
    folder = tmp_path / "folder"
    folder.mkdir()
    with sqlite3.connect(tmp_path / "r.sqlite") as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master").fetchall():
            cursor = db.execute(f"SELECT * FROM {table}")
            names = [d[0] for d in cursor.description]
            columns = {n: list(c) for n, c in zip(names, zip(*cursor.fetchall(), strict=True), strict=False)}
            arrays = [pa.array(columns.get(n, [])) for n in names]
            arrays = [a.view(pa.string()) if pa.types.is_binary(a.type) else a for a in arrays]
            pq.write_table(pa.table(arrays, names), folder / f"{table}.parquet")
    db.close()
    assert sql(folder, "SELECT DISTINCT in_elems, group_ranks FROM kernels") == [
        {"in_elems": 4 << 20, "group_ranks": "[0, 1]"}
    ]
