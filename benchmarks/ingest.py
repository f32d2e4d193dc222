"""Reading a large Chrome trace, against what else reads them, in one run.

    python benchmarks/ingest.py [--mb 100] [--peers peers/bin/python] [--perfetto] [--growth]
    python benchmarks/ingest.py --job 2000

Every tool reads the same file, grown from sample_traces/resnet18-1gpu, in processes of its own, and says how long its
kernels ran; Python's json with decimal numbers says what is right. Prints time, throughput, memory (of all processes
together, shared pages once) and the ratios of time. `--peers` is the environment with HolisticTraceAnalysis and
TraceLens that benchmarks/peers.py describes; `--perfetto` loads the file into Perfetto's UI, in a browser (the dev
extra and chromium). `--growth` reads 1, 2 and 4 such files, with 1 and 2 processes. `--job`: instead, a job
of so many ranks, whose traces have 6 MB each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_traces/resnet18-1gpu/torch/rank-0.trace.json.gz"
OF_TWO = ROOT / "sample_traces/resnet18-ddp2/torch/rank-0.trace.json.gz"
CATEGORY = "kernel"


def with_pandas(trace: str) -> float:
    """json.load into a frame: what scripts do."""
    import pandas as pd

    with Path(trace).open() as f:
        frame = pd.DataFrame(json.load(f)["traceEvents"])
    return float(frame[frame["cat"] == CATEGORY]["dur"].sum()) * 1000


def with_hta(trace: str) -> float:
    """HolisticTraceAnalysis, as it comes."""
    import logging

    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    hta = TraceAnalysis(trace_files={0: trace}, trace_dir="", include_last_profiler_step=True)
    events, names = hta.t.get_trace(0), hta.t.symbol_table.get_sym_id_map()
    return float(events[events["cat"] == names[CATEGORY]]["dur"].sum()) * 1000


def with_tracelens(trace: str) -> float:
    """TraceLens."""
    from TraceLens import TreePerfAnalyzer

    with contextlib.redirect_stdout(None):
        analyzer = TreePerfAnalyzer.from_file(trace)
    return sum(e["dur"] for e in analyzer.tree.events if e.get("cat") == CATEGORY) * 1000


def with_perfetto(trace: str) -> float:
    """Perfetto's UI and its engine in a browser, without the time that those take to start."""
    sys.path.insert(0, str(ROOT / "tests"))
    from perfetto_ui import opener

    ask = f"""async () => {{
        const rows = await app.trace.engine.query("SELECT sum(dur) AS ns FROM slice WHERE category = '{CATEGORY}'");
        return Number(rows.firstRow({{ns: 0n}}).ns);
    }}"""
    with opener(timeout_s=600) as show:
        began = time.perf_counter()
        answer = float(show(Path(trace), None).evaluate(ask))
        print(time.perf_counter() - began)
    return answer


def exactly(trace: str) -> float:
    """Nanoseconds, by Python's own reader and decimal numbers."""
    from decimal import Decimal

    with Path(trace).open() as f:
        events = json.load(f, parse_float=Decimal)["traceEvents"]
    return float(sum((e["dur"] for e in events if e.get("cat") == CATEGORY), Decimal(0)) * 1000)


TOOLS: dict[str, Callable[[str], float]] = {
    "pandas": with_pandas,
    "hta": with_hta,
    "tracelens": with_tracelens,
    "perfetto": with_perfetto,
    "exactly": exactly,
}


def memory_of(pid: int) -> int:
    """Bytes of a process and all below it, shared ones once (Linux)."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = int(line.split()[1]) * 1024
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += sum(memory_of(int(child)) for child in (thread / "children").read_text().split())
    return total


def measure(command: list[str], **variables: str) -> tuple[float, float, list[str]]:
    """Seconds, the most memory in MB, and the printed lines."""
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    peak = [0]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:

        def watch() -> None:
            while child.poll() is None:
                peak[0] = max(peak[0], memory_of(child.pid))
                time.sleep(0.1)

        watching = threading.Thread(target=watch)
        watching.start()
        out, err = child.communicate()
        seconds = time.perf_counter() - began
        watching.join()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}\n{err[-2000:]}")
    return seconds, peak[0] / 1e6, out.split()


def ours(traces: list[Path], store: Path, jobs: int | None = None) -> tuple[float, float]:
    """Seconds and MB of an ingest."""
    command = [sys.executable, "-m", "analyze", "ingest", *map(str, traces), "--store", str(store)]
    seconds, megabytes, _ = measure(command + (["--jobs", str(jobs)] if jobs else []))
    return seconds, megabytes


def race(trace: Path, folder: Path, peers: str | None, perfetto: bool) -> None:
    """A line for each tool, slowest last."""
    megabytes = trace.stat().st_size / 1e6

    def line(name: str, seconds: float, peak: float, total: float) -> None:
        off = total - right
        verdict = "right" if abs(off) < 0.5 else f"off by {off:+,.0f} ns ({100 * off / right:+.2f} %)"
        speed = f"{seconds:8.1f} s {megabytes / seconds:8.0f} MB/s {peak:8,.0f} MB {seconds / whole:7.1f} x"
        print(f"{name:20}{speed}   {verdict}")

    right = float(measure([sys.executable, __file__, "--as", "exactly", str(trace)])[2][-1])
    read, peak = ours([trace], folder / "store")
    question = "SELECT sum(dur_ns) AS ns FROM kernels"
    asked, least, said = measure(
        [sys.executable, "-m", "analyze", "sql", question, str(folder / "store"), "--format", "csv"]
    )
    whole = read + asked
    line("analyze ingest, sql", whole, max(peak, least), float(said[-1]))
    tools = [("json.load, pandas", "pandas", sys.executable)]
    tools += [("HTA", "hta", peers), ("TraceLens", "tracelens", peers)] if peers else []
    tools += [("Perfetto's UI", "perfetto", sys.executable)] if perfetto else []
    for name, tool, python in tools:
        seconds, peak, said = measure([python, __file__, "--as", tool, str(trace)], HTA_DISABLE_NS_ROUNDING="1")
        line(name, float(said[-2]) if tool == "perfetto" else seconds, peak, float(said[-1]))


def grow(target: Path, megabytes: int, source: Path = SAMPLE) -> Path:
    """The sample, grown."""
    target.parent.mkdir(exist_ok=True)
    maker = [sys.executable, str(Path(__file__).with_name("make_trace.py")), str(source), str(target)]
    subprocess.run([*maker, "--mb", str(megabytes)], check=True, stdout=subprocess.DEVNULL)
    return target


def growth(folder: Path, megabytes: int) -> None:
    """Files and processes. Of equal files only one would be read, so each is 5 MB longer than the one before."""
    print(f"\n{'files':>5} {'processes':>9} {'time':>10} {'throughput':>13} {'memory':>11}")
    traces = [grow(folder / f"job/{number}.json", megabytes + 5 * number) for number in range(4)]
    for files in (1, 2, 4):
        for jobs in (1, 2):
            seconds, peak = ours(traces[:files], folder / f"store-{files}-{jobs}", jobs)
            bytes_ = sum(trace.stat().st_size for trace in traces[:files])
            print(f"{files:5} {jobs:9} {seconds:8.1f} s {bytes_ / 1e6 / seconds:8.0f} MB/s {peak:8,.0f} MB")


def job(folder: Path, ranks: int, megabytes: int = 5) -> None:
    """A job of many ranks, each of which is rank 0 of a sample of two, grown: ingest and two questions."""
    one = grow(folder / "one.json", megabytes, OF_TWO)
    right = float(measure([sys.executable, __file__, "--as", "exactly", str(one)])[2][-1]) * ranks
    text, traces = one.read_bytes(), folder / "traces"
    traces.mkdir()
    for rank in range(ranks):
        said = b'"rank": %d, "world_size": %d' % (rank, ranks)
        (traces / f"rank-{rank}.trace.json").write_bytes(text.replace(b'"rank": 0, "world_size": 2', said, 1))
    total = ranks * len(text) / 1e6
    seconds, peak = ours([traces], folder / "job")
    print(f"{ranks:,} ranks, {total:,.0f} MB: {seconds:.1f} s, {total / seconds:.0f} MB/s, {peak:,.0f} MB of memory")
    for question in (["sql", "SELECT sum(dur_ns)::BIGINT AS ns FROM kernels"], ["query", "breakdown"]):
        asked, least, lines = measure(
            [sys.executable, "-m", "analyze", *question, str(folder / "job"), "--format", "csv"]
        )
        verdict = ("right" if float(lines[-1]) == right else f"not {right}") if question[0] == "sql" else ""
        print(f"{question[0]} {question[1].split('(')[0]}: {asked:.1f} s, {least:,.0f} MB of memory {verdict}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=100, help="size of the file")
    parser.add_argument("--peers", help="Python of the environment that has HolisticTraceAnalysis and TraceLens")
    parser.add_argument("--perfetto", action="store_true", help="Perfetto's UI in a browser, too")
    parser.add_argument("--growth", action="store_true", help="1, 2 and 4 files with 1 and 2 processes, too")
    parser.add_argument("--job", type=int, metavar="RANKS", help="instead, a job of so many ranks")
    parser.add_argument("--as", dest="tool", nargs=2, metavar=("TOOL", "TRACE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tool:
        tool, trace_path = options.tool
        print(TOOLS[tool](trace_path))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.job:
            job(folder, options.job)
            return
        trace = grow(folder / "trace.json", options.mb)
        print(f"{trace.stat().st_size / 1e6:,.0f} MB")
        race(trace, folder, options.peers, options.perfetto)
        if options.growth:
            growth(folder, options.mb)


if __name__ == "__main__":
    main()
