"""Nsight Systems exports with invalid values: every row is read or reported."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyze.errors import InputError
from analyze.sources.interface import FileReport
from analyze.sources.nsys.counters import FAULT_TABLES
from analyze.sources.nsys.reader import read
from analyze.sources.nsys.rows import EVENT_TABLES
from analyze.sources.nsys.thread_states import THREAD_TABLES
from tests.support import SAMPLES, sql
from tests.test_nsys_layouts import OLD, Row, new, process, two_processes, write_export

TOP = 2**63 - 1
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
COLUMNS = (
    "start end deviceId streamId correlationId globalPid demangledName gridX staticSharedMemory dynamicSharedMemory"
)
WHOLE = (100, 150, 0, 7, 1, process(40), 1, 8, 1024, 512)


def read_rows(path: Path) -> tuple[dict[str, list[dict[str, Any]]], FileReport]:
    """Rows by table, and the report."""
    report = FileReport()
    found: dict[str, list[dict[str, Any]]] = {}
    for table, rank, batch in read(path, report):
        found.setdefault(table, []).extend(r | {"rank": rank} for r in batch.to_pylist())
    return found, report


def kernels(path: Path, *rows: tuple[Any, ...], declared: str = "") -> tuple[list[dict[str, Any]], FileReport]:
    """What is read of an export of these kernels, in columns of a declared type (of none, values stay as they are)."""
    write_export(path, {t: c for t, c in OLD.items() if t in ("EXPORT_META_DATA", "StringIds")})
    with sqlite3.connect(path) as db:
        declared_columns = ", ".join(f'"{c}" {declared}' for c in COLUMNS.split())
        db.execute(f"CREATE TABLE {KERNEL} ({declared_columns})")
        db.executemany(f"INSERT INTO {KERNEL} VALUES ({', '.join('?' * len(WHOLE))})", rows)
    db.close()
    found, report = read_rows(path)
    return found.get("kernels", []), report


def with_value(column: str, value: Any) -> tuple[Any, ...]:
    return tuple(value if c == column else v for c, v in zip(COLUMNS.split(), WHOLE, strict=True))


@pytest.mark.parametrize("declared", ["TEXT", "REAL", "BLOB", "VARCHAR(20)", "NUMERIC", ""])
def test_declared_column_type_is_ignored(tmp_path: Path, declared: str) -> None:
    # SQLite stores numbers as text in a column that is declared so, and as doubles in one of REAL, which hold a global
    # id (2^56 and more) in part; rows of nobody are of the only process there is.
    found, report = kernels(tmp_path / "x.sqlite", WHOLE, declared=declared)
    pid = None if declared == "REAL" else 40
    assert [(r["start_ns"], r["dur_ns"], r["pid"], r["grid_x"]) for r in found] == [(100, 50, pid, 8)]
    lost = [f"x.sqlite: 1 value of {KERNEL}.globalPid not a whole number, read as NULL"]
    assert report.lost == 0 and report.warnings == (lost if pid is None else [])


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("start", None, "1 kernel without a start left out"),
        ("start", "soon", "1 kernel without a start left out"),
        ("end", None, "1 kernel without an end left out"),
        ("end", "²", "1 kernel without an end left out"),
        ("end", 1.5, "1 kernel without an end left out"),
        ("end", 1e300, "1 kernel without an end left out"),
        ("end", b"\xff\x00", "1 kernel without an end left out"),
        ("end", 99, "1 kernel with an end before the start left out"),
        ("end", -TOP, "1 kernel with an end before the start left out"),
        # end - start is 2^63 + 99: it would wrap.
        ("start", -TOP - 1, "1 kernel with an end before the start left out"),
    ],
)
def test_row_without_a_time_is_counted_and_loses_no_other(tmp_path: Path, column: str, value: Any, why: str) -> None:
    found, report = kernels(tmp_path / "x.sqlite", WHOLE, with_value(column, value), WHOLE)
    assert [r["dur_ns"] for r in found] == [50, 50]
    assert report.lost == 1 and why in report.warnings[0]


@pytest.mark.parametrize(
    ("column", "value", "read_as"),
    [
        ("deviceId", "first", ("device", None)),
        ("deviceId", 2**40, ("device", None)),
        ("gridX", 2**31, ("grid_x", None)),
        ("gridX", "8", ("grid_x", 8)),
        ("streamId", b"7", ("stream", None)),
        ("correlationId", 2.0, ("correlation_id", 2)),
        ("demangledName", "a name", ("name", "(unknown)")),
        ("staticSharedMemory", TOP, ("shared_mem_bytes", None)),
        ("dynamicSharedMemory", -1, ("shared_mem_bytes", None)),
    ],
)
def test_unreadable_value_is_null(tmp_path: Path, column: str, value: Any, read_as: tuple[str, Any]) -> None:
    found, report = kernels(tmp_path / "x.sqlite", with_value(column, value))
    assert found[0][read_as[0]] == read_as[1] and report.lost == 0
    damaged = isinstance(value, bytes) or value in ("first", "a name")
    assert report.warnings == (
        [f"x.sqlite: 1 value of {KERNEL}.{column} not a whole number, read as NULL"] if damaged else []
    )


def test_rows_without_a_process_are_counted_as_lost(tmp_path: Path) -> None:
    tables = two_processes()
    columns, rows = tables[KERNEL]
    tables[KERNEL] = (columns, [*rows, (500, 600, 1, 7, 2, None, 1)])
    found, report = read_rows(write_export(tmp_path / "x.sqlite", tables))
    assert len(found["kernels"]) == 2 and report.lost == 1
    assert "1 kernel of no process left out" in report.warnings[0]


def test_every_row_of_every_table_is_read_or_counted_as_lost(tmp_path: Path) -> None:
    """Of each table that is read one whole row, and one without each of its values; SQLite counts them."""
    tables: dict[str, tuple[str, list[Row]]] = {
        "META_DATA_EXPORT": ("name value", []),
        "StringIds": ("id value", [(1, "name")]),
        "TARGET_INFO_GPU_METRICS": ("typeId metricId metricName", [(1, 1, "SM Active")]),
        "TARGET_INFO_NETWORK_METRICS": ("metricsListId metricsIdx name unit", [(1, 1, "IB: Bytes sent", "B")]),
    }
    read_tables = {e.source: e.columns for e in (*EVENT_TABLES, *FAULT_TABLES, *THREAD_TABLES)} | {
        "CUDA_GPU_MEMORY_USAGE_EVENTS": ("start", "globalPid", "bytes", "memoryOperationType"),
        "GPU_METRICS": ("timestamp", "typeId", "metricId", "value"),
        "NET_NIC_METRIC": ("start", "globalId", "metricsListId", "metricsIdx", "value"),
        "NET_IB_SWITCH_METRIC": ("start", "globalId", "metricsListId", "metricsIdx", "value"),
    }
    values = {"globalPid": process(40), "globalTid": process(40), "eventType": 59, "start": 10, "end": 20}
    for table, columns in read_tables.items():
        whole = [values.get(column, 1) for column in columns]
        lacking = [tuple(None if i == at else v for i, v in enumerate(whole)) for at in range(len(whole))]
        tables[table] = (" ".join(columns), [tuple(whole), *lacking])
    path = write_export(tmp_path / "x.sqlite", tables)
    found, report = read_rows(path)
    with closing(sqlite3.connect(path)) as db:
        there = {table: db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in read_tables}
    assert all(there.values()) and unread_tables_of(report) == ""
    assert sum(map(len, found.values())) + report.lost == sum(there.values())


def unread_tables_of(report: FileReport) -> str:
    return " ".join(report.warnings).partition("recorded and not read: ")[2]


def test_ranges_without_a_kind_and_invalid_memory_events(tmp_path: Path) -> None:
    tables = new()
    columns, rows = tables["CUDA_GPU_MEMORY_USAGE_EVENTS"]
    odd = list(rows[0])
    changes = ((0, None), (6, None), (6, -5), (6, TOP), (8, 9), (8, None))
    tables["CUDA_GPU_MEMORY_USAGE_EVENTS"] = (
        columns, [*rows, *(tuple(v if i == at else o for i, o in enumerate(odd)) for at, v in changes)],
    )  # fmt: skip
    columns, rows = tables["NVTX_EVENTS"]
    tables["NVTX_EVENTS"] = (columns, [*rows, tuple(None if i == 2 else v for i, v in enumerate(rows[0]))])
    whole, _ = read_rows(write_export(tmp_path / "whole.sqlite", new()))
    found, report = read_rows(write_export(tmp_path / "x.sqlite", tables))
    assert found == whole and report.lost == 7
    for why in ("1 memory event without a start", "3 memory events without a size that can be",
                "2 memory events without a known operation", "1 range without a kind"):  # fmt: skip
        assert why in report.warnings[0]


def test_labels_and_strings_without_an_id(tmp_path: Path) -> None:
    tables = new()
    for table in ("StringIds", "ENUM_CUDA_MEMCPY_OPER"):
        columns, rows = tables[table]
        tables[table] = (columns, [*rows, *(tuple("x" if i else None for i in range(len(rows[0]))) for _ in "ab")])
    columns, rows = tables["CUPTI_ACTIVITY_KIND_MEMCPY"]
    at = columns.split().index("copyKind")
    tables["CUPTI_ACTIVITY_KIND_MEMCPY"] = (columns, [tuple(None if i == at else v for i, v in enumerate(rows[0]))])
    found, _ = read_rows(write_export(tmp_path / "x.sqlite", tables))
    assert found["memcpys"][0]["kind"] == "Unknown" and found["kernels"][0]["name"] == "void scale<float>(T1 *)"


@pytest.mark.parametrize("text", ["²", "99999999999", "-1", "abc", ""])
def test_rank_that_overflows_is_null(tmp_path: Path, text: str) -> None:
    tables = new()
    columns, rows = tables["META_DATA_CAPTURE"]
    variables = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'RANK="{text}"'), ("PROCESS_0:ARGUMENT_²", "x")]
    tables["META_DATA_CAPTURE"] = (columns, [*(r for r in rows if "RANK" not in r[1]), *variables])
    tables["META_DATA_EXPORT"] = ("name value", [("EXPORT_SCHEMA_VERSION_MAJOR", text)])
    found, report = read_rows(write_export(tmp_path / "x.sqlite", tables))
    assert {r["rank"] for r in found["kernels"]} == {None} and "world_size" not in report.info


def test_a_view_is_not_read(tmp_path: Path) -> None:
    path = write_export(tmp_path / "x.sqlite", OLD)
    with sqlite3.connect(path) as db:
        db.execute(f"ALTER TABLE {KERNEL} RENAME TO real")
        # One that has no end.
        db.execute(f"CREATE VIEW {KERNEL} AS WITH RECURSIVE r(start, end) AS "
                   "(SELECT 1, 2 UNION ALL SELECT start + 1, end + 1 FROM r) SELECT * FROM r")  # fmt: skip
    db.close()
    found, report = read_rows(path)
    assert "kernels" not in found and f"{KERNEL} is a view, not a table: not read" in report.warnings[0]


def test_write_ahead_log_is_read(tmp_path: Path) -> None:
    made = write_export(tmp_path / "made.sqlite", OLD)
    db = sqlite3.connect(made)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}")
    db.commit()
    folder = tmp_path / "copied"
    folder.mkdir()
    for name in ("made.sqlite", "made.sqlite-wal"):
        shutil.copyfile(tmp_path / name, folder / name)
    db.close()
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    found, report = read_rows(folder / "made.sqlite")
    assert len(found["kernels"]) == 2 and "no kernel" not in " ".join(report.warnings)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    path = write_export(tmp_path / "x" / "x.sqlite", OLD)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert len(read_rows(path)[0]["kernels"]) == 1
    finally:
        path.parent.chmod(0o755)


def folder_export(folder: Path, suffix: str, **columns: pa.Array) -> Path:
    """A folder export of 2026 whose kernels have other columns."""
    folder.mkdir()
    for table, (names, rows) in new().items():
        content = {n: pa.array([r[i] for r in rows]) for i, n in enumerate(names.split())}
        if table == KERNEL:
            content |= columns
        file = folder / (table + suffix)
        if suffix == ".parquet":
            pq.write_table(pa.table(content), file)
        else:
            table_ = pa.table(content)
            with pa.OSFile(str(file), "wb") as f, pa.ipc.new_stream(f, table_.schema) as w:
                w.write_table(table_)
    return folder / f"META_DATA_EXPORT{suffix}"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(
    ("end", "lengths"),
    [
        (pa.array(["150", "²", "310"]), [50, 10]),
        (pa.array([150.0, 210.5, 310.0]), [50, 10]),
        (pa.array([150, 2**63 + 5, 310], pa.uint64()), [50, 10]),
        (pa.array([b"150", b"\xff", b"310"]), []),
        (pa.array([150, None, 310]).dictionary_encode(), [50, 10]),
    ],
)
def test_columns_of_other_types_in_folders(tmp_path: Path, suffix: str, end: pa.Array, lengths: list[int]) -> None:
    found, report = read_rows(folder_export(tmp_path / "x", suffix, end=end))
    # The whole graph beside the three kernels took 500 ns.
    assert sorted(r["dur_ns"] for r in found["kernels"]) == sorted([*lengths, 500])
    assert report.lost == 3 - len(lengths)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_invalid_utf8_in_folders(tmp_path: Path, suffix: str) -> None:
    path = folder_export(tmp_path / "x", suffix)
    strings = path.with_name(f"StringIds{suffix}")
    data = strings.read_bytes()
    strings.write_bytes(data.replace(b"void scale<float>", b"void \xffcale<float>"))
    found, _ = read_rows(path)
    assert {r["name"] for r in found["kernels"]} == {"void \ufffdcale<float>(T1 *)", "[CUDA graph]"}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("cut", [0, 10, 300, -20])
def test_truncated_file_of_a_folder_is_one_sentence(tmp_path: Path, suffix: str, cut: int) -> None:
    path = folder_export(tmp_path / "x", suffix)
    file = path.with_name(KERNEL + suffix)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InputError, match=f"damaged or truncated: {KERNEL} cannot be read"):
        read_rows(path)


def test_real_export_loses_nothing() -> None:
    path = next(iter(sorted(SAMPLES.glob("*/nsys/*.sqlite"))))
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        (there,) = db.execute(f"SELECT count(*) FROM {KERNEL}").fetchone()
    found, report = read_rows(path)
    assert len(found["kernels"]) == there and report.lost == 0


INTEGERS = st.integers(-(2**63), TOP)
ANY = st.one_of(
    st.none(), INTEGERS, st.floats(), st.text(max_size=4), st.binary(max_size=4),
    st.sampled_from(["7", " 8 ", "1.0", "a\x00b", 2.0, 2.0**60]),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(COLUMNS.split()), st.one_of(INTEGERS, ANY)), max_size=12))
@example([("start", None), ("start", "late"), ("gridX", 1.5), ("demangledName", b"\xff")])
def test_large_files_are_read_as_small_ones(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, Any]]
) -> None:
    """Files from 8 MiB on are read by another driver."""
    folder = tmp_path_factory.mktemp("any")
    rows = [WHOLE, *(with_value(column, value) for column, value in values)]
    assert read_large(folder, *rows) == kernels(folder / "x.sqlite", *rows)


def test_types_may_change_between_batches_of_a_large_file(tmp_path: Path) -> None:
    many = [with_value("gridX", n) for n in range(70_000)]
    rows = [*many, with_value("gridX", "late"), with_value("start", 1.5), *many[:100]]
    assert read_large(tmp_path, *rows) == kernels(tmp_path / "x.sqlite", *rows)


def read_large(folder: Path, *rows: tuple[Any, ...]) -> tuple[list[dict[str, Any]], FileReport]:
    """Rows and report of an export of these kernels that another table makes large."""
    path = folder / "large" / "x.sqlite"
    path.parent.mkdir()
    kernels(path, *rows)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE padding (data)")
        db.execute("INSERT INTO padding VALUES (zeroblob(9000000))")
        db.commit()
    found, report = read_rows(path)
    return found.get("kernels", []), report


def test_error_of_nsys_in_a_run_folder_is_a_warning(tmp_path: Path) -> None:
    """Nsight Systems 2023.4 under CUDA 13: its export has no diagnostics, run.json has what it printed."""
    folder = tmp_path / "run"
    shutil.copytree(SAMPLES / "alexnet-dp2", folder)
    manifest = (folder / "run.json").read_text()
    error = "Unknown runtime API function index: 468"
    (folder / "run.json").write_text(manifest.replace('"import_error": null', f'"import_error": "{error}"'))
    rows = sql(folder, "SELECT profiler, warnings FROM runs ORDER BY profiler", profiler="all")
    warned = {r["profiler"]: r["warnings"] for r in rows}
    assert warned["nsys"] == f"run.json: Nsight Systems lost events when it imported its recording: {error}"
    assert warned["torch"] is None
