"""No file takes memory or time out of proportion to its size. Each case runs in its own process."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from commands import run_python
from traces import kernel

MEMORY_MB = 700
CPU_SECONDS = 100
"""Generous: a linear reader needs a few; what is told apart here took minutes or gigabytes. Of the process, not of the
clock: other work on the machine does not count."""

READ = f"""
import re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
from pathlib import Path
from analyze.errors import InputError
from analyze.sources import read
from analyze.sources.interface import FileReport
report = FileReport()
try:
    rows = sum(batch.num_rows for _, _, batch in read("chrome_trace", Path(sys.argv[1]), report))
    print(rows, *report.warnings)
except InputError as e:
    print("error", e)
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text()).group(1)) // 1024)
"""
KERNELS = [json.dumps(kernel(f"k{i}", i, 1)) for i in range(4000)]


def trace(events: list[str]) -> bytes:
    return ('{"traceEvents":[' + ",".join(events) + "]}").encode()


def with_odd(old: str, new: str) -> bytes:
    """Ten kernels, the sixth of which is changed."""
    assert old in KERNELS[5]
    return trace([*KERNELS[:5], KERNELS[5].replace(old, new), *KERNELS[6:10]])


def check(path: Path, rows: int, *says: str) -> None:
    done = run_python("-c", READ, path)
    assert done.returncode == 0, done.stderr
    *told, memory = done.stdout.splitlines()
    assert told[0].split()[0] == (str(rows) if rows else "error"), told
    assert all(s in told[0] for s in says), told
    assert int(memory) < MEMORY_MB


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        ('"args": {', '"args": {{', 1),  # a brace too many: no event closes
        ('"args": {', '"args": [', 1),
        ('"name": "', '"name": ', 1),
        ('}}', '}', 1),
        ('}}', '}}}', 4000),
    ],
)  # fmt: skip
def test_trace_of_damaged_events(tmp_path: Path, old: str, new: str, rows: int) -> None:
    path = tmp_path / "t.json"
    damaged = [k.replace(old, new) for k in KERNELS[:3999]]
    path.write_bytes(trace([*damaged, KERNELS[3999]]))
    check(path, rows, "3999 events could not be read" if rows == 1 else "brackets or other values between")


@pytest.mark.parametrize(("fill", "mib"), [(b"}", 24), (b"{}", 2), (b"} ,", 8), (b"[", 48), (b'"', 24)])
def test_file_of_brackets_only(tmp_path: Path, fill: bytes, mib: int) -> None:
    path = tmp_path / "brackets.json"
    path.write_bytes(trace(KERNELS[:2])[:-2] + fill * ((mib << 20) // len(fill)))
    check(path, 2, "truncated")


def test_deep_nesting_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(with_odd('"args": {', '"args": {"x": ' + "[" * 1_000_000 + "]" * 1_000_000 + ", "))
    check(path, 9, "1 event could not be read", "nested too deeply")
    path.write_bytes(with_odd('"args": {', '"args": {"x": ' + "[" * 20_000_000))
    check(path, 9, "1 event could not be read", "nested too deeply")


def test_long_event_and_long_string(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(with_odd('"k5"', '"' + "a" * (40 << 20) + '"'))
    check(path, 9, "1 event could not be read", "longer than 16 MiB")
    path.write_bytes(with_odd('"k5"', '"' + "\\\\n" * (20 << 20) + '"'))
    check(path, 9, "1 event could not be read", "longer than 16 MiB")
    path.write_bytes(with_odd('"k5"', '"' + "a" * (2 << 20) + '"'))
    check(path, 10, "cannot hold are NULL: 1 name")


def test_times_of_a_million_digits(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for ts in ("1e999990", "1e9999999", "1" * 1_000_000):
        path.write_bytes(with_odd('"ts": 5', f'"ts": {ts}'))
        check(path, 9, "1 event could not be read", "without a time")


def pack(path: Path, parts: list[bytes], fill: bytes, mb: int) -> None:
    """A gzip file of two parts, with so many MB of filling between them."""
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(parts[0])
        for _ in range(mb):
            f.write(fill * ((1 << 20) // len(fill)))
        f.write(parts[1])


@pytest.mark.parametrize(
    ("parts", "fill", "rows", "says"),
    [
        ((b'{"traceEvents":[', KERNELS[1].encode() + b"]}"), b" ", 1, ""),
        ((b'{"traceEvents":[', KERNELS[1].encode() + b"]}"), b"[", 1, "brackets or other values between"),
        ((b'{"traceEvents":[', KERNELS[1].encode() + b"]}"), b'{"a":', 1, ""),
        ((b'{"a":"', b'","traceEvents":[]}'), b"a", 0, 'no "traceEvents" list in its first 8 MiB'),
        ((b'{"a":[', b'],"traceEvents":[]}'), b"[", 0, 'no "traceEvents" list in its first 8 MiB'),
        ((trace(KERNELS[:3])[:-1] + b',"a":"', b'"}'), b"a", 3, "longer than 8 MiB"),
        ((trace(KERNELS[:3])[:-1] + b',"a":[', b"]}"), b"[", 3, "longer than 8 MiB"),
    ],
)  # fmt: skip
def test_gzip_bombs_are_limited(tmp_path: Path, parts: list[bytes], fill: bytes, rows: int, says: str) -> None:
    path = tmp_path / "t.json.gz"
    # Events within events take longest.
    pack(path, parts, fill, 30 if fill == b'{"a":' else 100)
    assert path.stat().st_size < 2 << 20
    check(path, rows, says)
