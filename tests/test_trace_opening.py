"""`analyze trace --open`: the Perfetto UI gets the trace once, from loopback, at the requested time."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from commands import complaints, run_cli, start_cli
from support import SAMPLES, ask, sample_engine
from traces import event, kernel, launch, write_trace

from analyze import advise
from analyze.advise import Advice
from analyze.ingestion.opening import open_stores
from analyze.query.engine import Engine
from analyze.trace.export import Exported
from analyze.trace.moments import Moment, find_moment

ONE = SAMPLES / "resnet18-1gpu"


@pytest.fixture
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Port 9001 for one test at a time, over all test processes."""
    with (tmp_path_factory.getbasetemp().parent / "port-9001.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(port: None) -> Iterator[Start]:
    """Starts `analyze trace`; what a test that fails leaves running is ended, and the port free again."""
    started: list[subprocess.Popen[str]] = []

    def go(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        started.append(start_cli("trace", *arguments, **environment))
        return started[-1]

    yield go
    for process in started:
        with process:
            process.kill()


def parameters(address: str) -> dict[str, str]:
    page, _, query = address.strip().partition("#!/?")
    assert page == "https://ui.perfetto.dev/"
    return {name: value for name, [value] in parse_qs(query).items()}


def status(url: str, method: str = "GET", **headers: str) -> tuple[int, str | None]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as answer:
            return answer.status, answer.headers["Access-Control-Allow-Origin"]
    except urllib.error.HTTPError as e:
        return e.code, e.headers["Access-Control-Allow-Origin"]


def test_trace_is_served_once_and_only_to_perfetto(start: Start, tmp_path: Path) -> None:
    process = start(ONE, "--print-url", "-o", tmp_path / "kept.json.gz")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"{tmp_path}/kept.json.gz: 2026")
    address = process.stdout.readline()
    url = parameters(address)["url"]
    assert re.fullmatch(r"http://127\.0\.0\.1:9001/[\w-]{22}/kept\.json\.gz", url) and "visStart" not in address
    # Not under another path, nor for a name that somebody else resolves to this machine; nothing is written to it.
    assert status("http://127.0.0.1:9001/kept.json.gz")[0] == 404
    assert status(url, Host="evil.example:9001")[0] == 404
    assert status("http://127.0.0.1:9001/status", "POST")[0] == 404
    assert status(url, "OPTIONS") == (204, "https://ui.perfetto.dev")
    # A connection that the browser opens and does not use holds up nobody.
    with socket.create_connection(("127.0.0.1", 9001)):
        with urllib.request.urlopen(url) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
            data = answer.read()
        assert process.wait(30) == 0
    assert data == (tmp_path / "kept.json.gz").read_bytes() and json.loads(gzip.decompress(data))["traceEvents"]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", 9001)).close()


def test_browser_opens_the_address(start: Start, tmp_path: Path) -> None:
    program, script = tmp_path / "browser.py", tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(program)])} "$@"\n')
    program.write_text(
        "import pathlib, sys, urllib.parse, urllib.request\n"
        "query = urllib.parse.parse_qs(sys.argv[1].partition('?')[2])\n"
        f"pathlib.Path({str(tmp_path)!r}, 'got').write_bytes(urllib.request.urlopen(query['url'][0]).read())\n"
    )
    script.chmod(0o755)
    process = start(ONE, "--open", BROWSER=f"{shlex.quote(str(script))} %s", TMPDIR=str(tmp_path))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(gzip.decompress((tmp_path / "got").read_bytes()))["run_id"] in out
    assert "https" not in out and not list(tmp_path.glob("tracequarry-*"))


def test_ctrl_c_ends_serving_and_removes_the_trace(start: Start, tmp_path: Path) -> None:
    process = start(ONE, "--print-url", TMPDIR=str(tmp_path))
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stdout.readline().startswith("https://ui.perfetto.dev/")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130 and not list(tmp_path.glob("tracequarry-*"))


def test_port_in_use_is_one_sentence(port: None) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 9001))
        other.listen()
        result = run_cli("trace", ONE, "--open")
    assert result.returncode == 2 and len(complaints(result)) == 1
    assert "cannot listen on 127.0.0.1:9001, the only address that the Perfetto UI fetches from" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "trace: needs -o out.json.gz, --open or --print-url"),
        (["-o", "o.json", "--at", "gap:1"], "--at needs --open or --print-url"),
        (["--open", "--at", "gap:0"], "--at gap:0: expected gap:N"),
        (["--open", "--at", "gap:999999"], "--at gap:999999: no such gap; `analyze query gaps` has rows 1 to "),
        (
            ["--open", "--at", "noon"],
            "--at noon: expected gap:N, a time in ms, or a finding of advise: autotuning, ",
        ),
        (["--open", "--at", "nan"], "--at nan: expected gap:N"),
        (["--open", "--at", "dataparallel"], "--at dataparallel: not a finding of this recording"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], says: str) -> None:
    result = run_cli("trace", ONE, *arguments)
    assert result.returncode == 2 and len(complaints(result)) == 1 and says in result.stderr


def by_hand(path: Path) -> Engine:
    # The first event is at 1000 us. GPU work at 1100-1110, 1400-1410 (a gap of 290 us, launched late) and 1460-1470 (a
    # gap of 50). On GPU 1: 1200-1210, 1250-1260 (a gap of 40 us).
    events = [
        event("cpu_op", "aten::first", 1000, 5),
        launch(1090, 1), kernel("a", 1100, 10, correlation=1),
        launch(1390, 2), kernel("b", 1400, 10, correlation=2),
        launch(1450, 3), kernel("c", 1460, 10, correlation=3),
        launch(1190, 4), kernel("d", 1200, 10, device=1, correlation=4),
        launch(1240, 5), kernel("e", 1250, 10, device=1, correlation=5),
    ]  # fmt: skip
    return Engine(open_stores([write_trace(path, events)])[0])


def test_queries_and_traces_share_one_zero(tmp_path: Path) -> None:
    """The first event of the run, at 1000 us."""
    by_hand(tmp_path / "t.json")
    assert [r["start_ns"] for r in ask(tmp_path / "t.json", "gaps")] == [110_000, 410_000, 210_000]
    rows = ask(tmp_path / "t.json", "timeline", params={"buckets": 1})
    assert [(r["device"], r["start_ns"]) for r in rows] == [(0, 100_000), (1, 200_000)]
    rows = ask(tmp_path / "t.json", "queue-timeline", params={"buckets": 1})
    assert [(r["device"], r["start_ns"]) for r in rows] == [(0, 90_000), (1, 190_000)]
    # From 0.41 ms on, where the second gap starts, there is its end and nothing before.
    done = run_cli("trace", tmp_path / "t.json", "--from-ms", "0.41", "--no-counters", "-o", tmp_path / "o.json")
    assert done.returncode == 0
    found = json.loads((tmp_path / "o.json").read_text())["traceEvents"]
    assert sorted(e["ts"] for e in found if e["ph"] == "X") == [450, 460]


def test_at_times_by_hand(tmp_path: Path) -> None:
    engine = by_hand(tmp_path / "t.json")
    assert [r["gap_ns"] for r in ask(tmp_path / "t.json", "gaps")] == [290_000, 50_000, 40_000]
    found = [find_moment(engine, f"gap:{n}") for n in (1, 2, 3)]
    assert found == [Moment(110_000, 400_000, True), Moment(410_000, 460_000, True), Moment(210_000, 250_000, True)]
    # The longest of the gaps for which nothing was queued.
    assert find_moment(engine, "host-wait") == Moment(1_110_000, 1_400_000)
    assert find_moment(engine, "0.3") == Moment(300_000, 300_000, from_zero=True)
    # From the first event, with as much around as it is long, 10 us at least, within the trace (1000 to 1470 us).
    trace = Exported("run", 1, 0, 0, 1_000_000, 1_000_000, 1_470_000)
    assert Moment(1_410_000, 1_420_000).within(trace) == (400_000, 430_000)
    assert found[0].within(trace) == (0, 470_000)
    assert find_moment(engine, "0.3").within(trace) == (290_000, 310_000)
    assert find_moment(engine, "99").within(trace) == (470_000, 470_000)


def test_every_finding_has_a_command_to_open_it() -> None:
    for sample in ("resnet18-1gpu", "late-rank"):
        engine = sample_engine(sample)
        found = advise.advise(engine, min_pct=0)
        assert found
        [(first, last)] = engine.rows("SELECT min(start_ns), max(start_ns + dur_ns) FROM gpu_work")
        advise.write_text(found, text := io.StringIO())
        for row in found:
            assert f"look: analyze trace PATH --open --at {row.finding}\n" in text.getvalue()
            moment = find_moment(engine, row.finding)
            assert moment == Moment(row.start_ns, row.end_ns)
            assert moment.start_ns < moment.end_ns <= last and moment.end_ns > first - 1_000_000_000
    # Of several runs, or one that was chosen, the command says which.
    chosen = "--at tf32 --where \"run_id = '20261120-171855-resnet18-b32-g1-fp32-ffca'\"\n"
    assert chosen in run_cli("advise", SAMPLES / "resnet18-1gpu", SAMPLES / "vgg16-fp32").stdout
    assert chosen in run_cli("advise", SAMPLES / "resnet18-1gpu", "--profiler", "torch").stdout


def test_suggested_command_is_shell_quoted() -> None:
    hostile = "it's $(touch x) \"; touch x"
    file = io.StringIO()
    row = ("t", 1, 1, 1.0, "measured", None, "e", "q", "try", None, 0, 0, None, None, None, None, 0, 1)
    advise.write_text([Advice(hostile, "tf32", *row)], file, chosen=True)
    line = next(line for line in file.getvalue().splitlines() if "look:" in line)
    quoted = hostile.replace("'", "''")
    words = ["analyze", "trace", "PATH", "--open", "--at", "tf32", "--where", f"run_id = '{quoted}'"]
    assert shlex.split(line.partition("look: ")[2]) == words
    script = line.partition("look: ")[2].replace("analyze", "printf '%s\\n'", 1)
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True).stdout
    assert printed.splitlines() == words[1:]
