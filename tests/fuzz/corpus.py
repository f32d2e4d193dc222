"""The real files that are damaged, by source, and other forms of the same content."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import random
import re
import shutil
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests import rocprofv3_files
from tests.nvprof_tables import API_TRACE, BANNER, GPU_TRACE, METRICS, SUMMARY
from tests.test_nccl_inspector import dump, header, reduce, send

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_traces"

_LAUNCH = 11
"""Columns of ncu's raw page that tell the launch."""


@cache
def chrome() -> list[bytes]:
    """Traces of torch.profiler, unpacked; those under 400 kB, so that many inputs fit into a minute."""
    packed = sorted(SAMPLES.glob("*/torch/*.trace.json.gz"))
    traces = (gzip.decompress(p.read_bytes()) for p in packed)
    return [t for t in traces if len(t) < 400_000]


@cache
def producers() -> list[bytes]:
    """Traces of other programs than torch.profiler: kernels, the calls that launched them, and copies."""
    jax, npu, intel = "/device:GPU:0", "Ascend Hardware", "DEVICE<Intel(R) Data Center GPU Max 1550>"
    made = {
        "jax": (jax, "Stream #15(Compute)", "/host:CPU", [("gemm", {"correlation_id": "8"}), ("MemcpyH2D", {})]),
        "ascend": (npu, "Stream 2", "CANN", [("MatMulV2", {"Task Type": "AI_CORE", "connection_id": 8})]),
        "unitrace": (intel, "", "HOST", [("gemm[SIMD32 {4; 2; 1} {256; 1; 1}]", {"id": "8"})]),
        "proton": ("0", "GPU Stream 7", "CPU", [("matmul", {"call_stack": ["ROOT", "matmul"]})]),
    }
    launches = {"jax": "cuLaunchKernel", "ascend": "Node@launch", "unitrace": "zeLaunchKernel", "proton": "scope"}
    kinds = {"unitrace": ("gpu_op", "cpu_op"), "proton": ("kernel", "scope")}
    return [_producer(*parts, launches[name], kinds.get(name)) for name, parts in made.items()]


def _producer(
    device: str, stream: str, host: str, work: list[tuple[str, Any]], launch: str, kinds: tuple[str, str] | None
) -> bytes:
    names = {(1, "process_name"): device, (1, "thread_name"): stream, (7, "process_name"): host}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": what, "pid": pid, "tid": 2, "args": {"name": name}} for (pid, what), name in names.items()
    ]
    for at in range(0, 10_000, 100):
        name, args = work[at // 100 % len(work)]
        for pid, event, ts, kind in ((7, launch, at, 1), (1, name, at + 40, 0)):
            cat = {"cat": kinds[kind]} if kinds else {}
            events.append({"ph": "X", **cat, "name": event, "pid": pid, "tid": 2, "ts": ts, "dur": 30, "args": args})
    return json.dumps({"traceEvents": events}).encode()


@cache
def rocprof_json() -> bytes:
    """A recording of rocprofv3 as JSON: 100 dispatches, copies, calls and ranges."""
    with tempfile.TemporaryDirectory() as folder:
        file = json.loads(rocprofv3_files.rocprof_json(Path(folder) / "r.json").read_bytes())
    records = file["rocprofiler-sdk-tool"][0]["buffer_records"]
    for name, [one] in records.items():
        records[name] = [one | {"correlation_id": {"internal": n}} for n in range(1, 101)]
    return json.dumps(file).encode()


def write_rocpd(path: Path) -> Path:
    """Write the same as a database."""
    rows = dict(rocprofv3_files.ROWS)
    for table in ROCPD_EVENTS:
        rows[table] = [one | {"id": n} for n, one in enumerate(50 * rows[table], 1)]
    return rocprofv3_files.rocpd(path, rows)


ROCPD_EVENTS = ("kernel_dispatch", "memory_copy", "region")
"""Tables of events, without the beginning and the end of their names."""


@cache
def ncu() -> list[bytes]:
    """Output of Nsight Compute under 200 kB: the raw page alone and in its log, the same as long CSV and as text."""
    found = []
    for path in sorted(SAMPLES.glob("*/ncu/*.ncu.csv")):
        wide, lines = path.read_bytes(), path.with_name("log.txt").read_bytes().splitlines(keepends=True)
        # Where a report was written, the log is of no source.
        log = b"".join(line for line in lines if not line.startswith(b"==PROF== Report:"))
        rows = list(csv.reader(io.StringIO(wide.decode())))[:14]
        if len(wide) > 200_000:
            continue
        found += [wide, log + wide, log + _long(rows), log + _text(rows), wide + _text(rows) + _long(rows)]
    return found


def _measured(rows: list[list[str]]) -> list[int]:
    return [i for i, name in enumerate(rows[0]) if "__" in name and not name.startswith("device__")][:12]


def _long(rows: list[list[str]]) -> bytes:
    """As `ncu --csv --metrics ...` prints the launches of a raw page."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*rows[0][:_LAUNCH], "Section Name", "Metric Name", "Metric Unit", "Metric Value"])
    for launch in rows[2:]:
        for i in _measured(rows):
            section = "Command line profiler metrics"
            writer.writerow([*launch[:_LAUNCH], section, rows[0][i], rows[1][i], launch[i]])
    return out.getvalue().encode()


def _text(rows: list[list[str]]) -> bytes:
    """As `ncu --metrics ...` prints the launches of a raw page."""
    out = [f"[{rows[2][1]}] {rows[2][2]}@{rows[2][3]}\n"]
    chosen = _measured(rows)
    widths = [max(len(rows[0][i]) for i in chosen), 12, 16]
    rule = "    " + " ".join("-" * w for w in widths) + "\n"

    def line(metric: str, unit: str, value: str) -> str:
        return f"    {metric:{widths[0]}} {unit:>{widths[1]}} {value:>{widths[2]}}\n"

    for launch in rows[2:]:
        kernel, context, stream, block, grid, device, cc = launch[4:_LAUNCH]
        out.append(f"  {kernel} {grid}x{block}, Context {context}, Stream {stream}, Device {device}, CC {cc}\n")
        out.append("    Section: Command line profiler metrics\n" + rule)
        out.append(line("Metric Name", "Metric Unit", "Metric Value") + rule)
        out += [line(rows[0][i], rows[1][i], launch[i]) for i in chosen]
        out.append(rule + "\n")
    return "".join(out).encode()


@cache
def nvprof() -> list[bytes]:
    """Real logs with tables, and tables of the other kinds."""
    real = [p.read_bytes() for p in sorted((ROOT / "tests" / "data" / "nvprof").glob("*.log"))]
    made = [SUMMARY, GPU_TRACE, API_TRACE, METRICS, SUMMARY + METRICS, GPU_TRACE + API_TRACE]
    # The logs without a table come last: they are sentences already.
    return [r for r in real if b'"API calls",' in r or b"Tesla" in r] + [(BANNER + m).encode() for m in made]


@cache
def step_metrics() -> list[bytes]:
    """Step metrics of the collector."""
    return [p.read_bytes() for p in sorted(SAMPLES.glob("*/*/*.step_metrics.csv"))]


def memory_snapshot() -> dict[str, Any]:
    """A memory snapshot with the first of its events; a new object at each call."""
    [path] = SAMPLES.glob("*/torch/*.memory_snapshot.pickle")
    found: dict[str, Any] = pickle.loads(path.read_bytes())
    found["device_traces"] = [trace[:60] for trace in found["device_traces"]]
    found["memory_stats"] = [{"allocated_bytes.all.peak": 81975819264, "num_ooms": 1}]
    return found


def flight_recorder(rng: random.Random) -> dict[str, Any]:
    """A dump of the flight recorder; a new object at each call."""
    found: dict[str, Any] = pickle.loads(rng.choice(sorted(SAMPLES.glob("hang-*/nccl_trace_rank_*"))).read_bytes())
    return found


def nccl_inspector() -> bytes:
    """A log of NCCL Inspector of version 4.3, and the same records of 4.2, as its README documents them."""
    dumps = [
        dump(header(0), version, [*(reduce(n, 10 + n) for n in range(20)), send(1, 5)]) for version in ("v4.3", "v4.2")
    ]
    return "".join(json.dumps(line) + "\n" for dump in dumps for line in dump).encode()


@cache
def torch_trace() -> bytes:
    """A log of TORCH_TRACE, without most events of phases, which are six sevenths of it."""
    log = gzip.decompress((SAMPLES / "recompile-ddp/torch/rank-0.torch_trace.log.gz").read_bytes())
    records = re.split(rb"^(?=[VDIWEC]\d{4} )", log, flags=re.MULTILINE)
    events = [record for record in records if b'] {"chromium_event"' in record]
    return b"".join(record for record in records if record not in events[20:])


def nsys_sqlite() -> Path:
    """An export of Nsight Systems."""
    return next(iter(sorted(SAMPLES.glob("*/nsys/*.sqlite"))))


NSYS_TABLES = (
    "StringIds", "META_DATA_EXPORT", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_GPU", "NVTX_EVENTS",
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "TARGET_INFO_CUDA_CONTEXT_INFO", "ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND",
)  # fmt: skip
"""Tables that the reader looks at."""


def write_nsys_folder(folder: Path, suffix: str) -> None:
    """The same export as a folder of Parquet or Arrow files."""
    folder.mkdir()
    with sqlite3.connect(nsys_sqlite()) as db:
        for table in NSYS_TABLES:
            cursor = db.execute(f'SELECT * FROM "{table}"')
            names = [d[0] for d in cursor.description]
            columns = list(zip(*cursor, strict=True)) or [()] * len(names)
            content = pa.table([pa.array(c) for c in columns], names)
            path = folder / (table + suffix)
            if suffix == ".parquet":
                pq.write_table(content, path)
            else:
                with pa.OSFile(str(path), "wb") as f, pa.ipc.new_stream(f, content.schema) as writer:
                    writer.write_table(content)
    db.close()


def copy_run(to: Path) -> Path:
    """A small run folder."""
    return Path(shutil.copytree(SAMPLES / "matmuls", to))
