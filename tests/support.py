"""What the tests share: traces written by hand, and questions asked of them through the real path."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import analyze
from analyze.cli.main import run as run_command
from analyze.ingestion.cache import open_stores
from analyze.query.blocks import defining, words
from analyze.query.engine import Engine
from analyze.query.engines import Engines
from analyze.query.query_files import ResultColumn, catalog
from analyze.query.selection import DEFAULT, Selection
from schemas.tables import TABLES

ROOT = Path(__file__).parent.parent
OWN = tuple(str(ROOT / package) for package in ("analyze", "collect", "schemas"))
"""Where the files of the package are."""
SAMPLES = ROOT / "sample_traces"


def event(
    cat: str, name: str, ts: float, dur: float, pid: int | str = 1, tid: int | str = 1, **args: Any
) -> dict[str, Any]:
    """A complete event (ph X); times in us."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, device: int = 0, stream: int = 7, **args: Any) -> dict[str, Any]:
    """A kernel; times in us."""
    return event("kernel", name, ts, dur, device, stream, device=device, stream=stream, **args)


def launch(ts: float, correlation: int, dur: float = 1, name: str = "cudaLaunchKernel", **args: Any) -> dict[str, Any]:
    """A launch call; times in us."""
    return event("cuda_runtime", name, ts, dur, correlation=correlation, **args)


def write_trace(path: Path, events: Sequence[dict[str, Any]], **header: Any) -> Path:
    """A Chrome trace of these events."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}))
    return path


def op(name: str, ts: float, dur: float, op_id: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    """An operator, which work names by its External id; times in us."""
    return event("cpu_op", name, ts, dur, tid=tid, **{"External id": op_id, **args})


def launched(ts: float, op_id: int, start: float, dur: float, name: str = "k") -> list[dict[str, Any]]:
    """A launch of 1 us in an operator, and the kernel that it starts; times in us."""
    own: dict[str, Any] = {"External id": op_id}
    correlation = op_id + 1_000_000  # another number, as since torch 2.3: see the table call_ops
    return [launch(ts, correlation, **own), kernel(name, start, dur, correlation=correlation, **own)]


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    """A step as torch.profiler marks it; times in us."""
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def write_ranks(
    folder: Path, *ranks: Sequence[dict[str, Any]], groups: Sequence[list[dict[str, Any]]] | None = None
) -> Path:
    """Traces of the ranks of a job, with the process groups that each lists; the folder."""
    for rank, events in enumerate(ranks):
        job: dict[str, Any] = {"rank": rank, "world_size": len(ranks)}
        job |= {"pg_config": groups[rank]} if groups else {}
        write_trace(folder / f"rank-{rank}.json", events, distributedInfo=job)
    return folder


def write_run(folder: Path, files: Sequence[tuple[str, str, int]], profiler: str = "torch", **fields: Any) -> Path:
    """The run.json of a run folder: one pass, which left files of these paths, kinds and ranks; the folder."""
    left = [{"path": path, "kind": kind, "rank": rank} for path, kind, rank in files]
    manifest = {
        "run_id": folder.name, "status": "done", "start": "2026-01-01T00:00:00+00:00", "command": ["collect"],
        "passes": [{"profiler": profiler, "status": "done", "files": left}],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(manifest | fields))
    return folder


def ask(
    path: Path, query: str, where: str | None = None, profiler: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Rows of a query."""
    answer = opened(path).where(where, profiler).query(query, **options)
    names = [c.name for c in answer.columns]
    return [dict(zip(names, row, strict=True)) for row in answer.rows()]


def sql(
    path: Path, statement: str, where: str | None = None, profiler: str | None = None, by: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Rows of a SELECT, asked as the package asks its own: no DuckDB is made for it, as one is for `traces.sql`."""
    selection = replace(DEFAULT.narrowed(where, profiler), by=tuple(by))
    return opened(path).engines.get(selection).dicts(statement, defining(words(statement.lower())))


def stored_rows(store: Path | str, tables: Iterable[str] = TABLES) -> dict[str, list[dict[str, Any]]]:
    """All rows of a store by table, in an order of their own."""
    with analyze.open(store) as traces:
        engine = traces.engines.get(DEFAULT.narrowed(profiler="all"))
        return {t: engine.dicts(f"SELECT * FROM {t} ORDER BY ALL") for t in tables}


def opened(path: Path) -> analyze.Traces:
    """A recording, opened; still the same for the next question of it: to open one takes longer than most."""
    if not isinstance(path, Path) or (path / "store.json").exists():
        return analyze.open(path)
    files = [path] if path.is_file() or SAMPLES in (path, *path.parents) else sorted(path.rglob("*"))
    states = [(file, stat.st_mtime_ns, stat.st_size) for file in files for stat in (file.stat(),)]
    return _opened(path, *states, os.environ["TRACEQUARRY_CACHE"])


@lru_cache(4)
def _opened(path: Path, *state: object) -> analyze.Traces:
    return analyze.open(path)


@cache
def sample_engines(name: str) -> Engines:
    """Those of a sample, or of all with "", that keep what questions share: for tests that ask them all."""
    return Engines(open_stores([SAMPLES / name])[0])


class Answered(NamedTuple):
    """The answer to a query, with its rows."""

    columns: tuple[ResultColumn, ...]
    main: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@cache
def default_answer(sample: str, query: str) -> Answered:
    """The answer of a sample, or of all with "", to a query without parameters."""
    asked = sample_engines(sample).get(DEFAULT, catalog()[query]).query(catalog()[query])
    return Answered(asked.columns, asked.main, asked.rows())


@cache
def grouped_answer(by: tuple[str, ...], query: str) -> Answered:
    """The answer of all samples, of all their passes, in groups."""
    asked = _grouped_engine(by).query(catalog()[query])
    return Answered(asked.columns, asked.main, asked.rows())


@cache
def _grouped_engine(by: tuple[str, ...]) -> Engine:
    return Engine(open_stores([SAMPLES])[0], Selection(profiler="all", by=by))


def run_cli(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `analyze ARGUMENTS` in this process, with these environment variables."""
    printed, said = io.BytesIO(), io.BytesIO()
    out, err = io.TextIOWrapper(printed, "utf-8"), io.TextIOWrapper(said, "utf-8", "backslashreplace")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in {"COLUMNS": "160", **environment}.items():
            patch.setenv(name, value)
        if cwd:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            run_command([*map(str, arguments)])
    out.flush()
    err.flush()
    code = ended.value.code if isinstance(ended.value.code, int) else 0
    return subprocess.CompletedProcess(arguments, code, printed.getvalue().decode(), said.getvalue().decode())


def run_python(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS`."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=variables(**environment))


def run_cli_under(
    hook: str, *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `analyze ARGUMENTS` in a process whose audit hook is this body of `def hook(event, args)`: it does what a
    machine or a user does at a certain moment."""
    code = "import errno, os, signal, sys\ndef hook(event, args):\n" + textwrap.indent(hook, "    ")
    code += "\nsys.addaudithook(hook)\nfrom analyze.cli.main import main\nmain()"
    return run_python("-c", code, *arguments, cwd=cwd, **environment)


def start_cli(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start `analyze ARGUMENTS`, with pipes to read from while it works."""
    command, pipe = [sys.executable, "-m", "analyze", *arguments], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables(**environment))


def variables(**environment: str) -> dict[str, str]:
    """The environment of a Python that imports these packages from anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **environment}


def in_terminal(columns: int, *arguments: str | Path) -> list[str]:
    """What a command prints to a terminal of so many columns, line by line, without what makes it bold."""
    import pty  # not on Windows
    import termios

    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, columns))
    environment = {k: v for k, v in variables(TERM="xterm").items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-m", "analyze", *arguments]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment) as process:
        os.close(slave)
        parts = []
        with suppress(OSError):  # the other side is closed
            while part := os.read(master, 1 << 16):
                parts.append(part)
        os.close(master)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(parts).decode()).splitlines()


def bash(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in bash, which fails where any part of a pipe does; `analyze` in it is that of this Python."""
    script = f'analyze() {{ {shlex.quote(sys.executable)} -m analyze "$@"; }}\n{command}\n'
    shell = ["bash", "-o", "pipefail", "-c", script]
    return subprocess.run(shell, capture_output=True, text=True, cwd=ROOT, env=variables())


def complaints(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Lines on stderr beside the one that says what files were read as, which is there the first time."""
    return [line for line in result.stderr.splitlines() if not line.startswith("read as: ")]


def lines_run(task: Callable[[], object]) -> int:
    """Lines of the package that a task runs: a measure of its work that a busy machine does not change, nor what
    others do meanwhile (collect garbage, take samples)."""
    count = 0

    def trace(frame: FrameType, what: str, argument: object) -> Any:
        nonlocal count
        count += what == "line"
        return trace if frame.f_code.co_filename.startswith(OWN) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        task()
    finally:
        sys.settrace(before)
    return count


def can_compile() -> bool:
    """Whether there is a C compiler that finds Python.h."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "")
    command += ["-fsyntax-only", f"-I{sysconfig.get_path('include')}", "-x", "c", "-"]
    try:
        return subprocess.run(command, input=b"#include <Python.h>\n", capture_output=True).returncode == 0
    except OSError:
        return False


def require_compiled(module: object, name: str) -> None:
    """Skip without a C compiler. Fail if there is one and the module is missing: an installation failed."""
    if module is not None:
        return
    assert not can_compile(), f"{name} is not there: python setup.py build_ext --inplace says why, or makes it"
    pytest.skip(f"no C compiler that finds Python.h: the JSON decoder replaces {name}.c")


def forget(store: Path, *fields: str) -> None:
    """Remove fields of all files from a store's catalogue, as older versions wrote it: without sizes a store is
    large, without checksums DuckDB finds the damage."""
    catalogue = json.loads((store / "store.json").read_text())
    for run in catalogue["runs"].values():
        for file in (f for files in run["tables"].values() for f in files):
            for field in fields:
                file.pop(field, None)
    (store / "store.json").write_text(json.dumps(catalogue))


def stats_of_children(pid: int) -> list[list[str]]:
    """What /proc/PID/stat has behind the name, of each process that a process has started and that still exists."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            found.append(path.read_text().rpartition(")")[2].split())
    return [stat for stat in found if int(stat[1]) == pid]
