"""Time and memory of `analyze report` on a big trace: `python benchmarks/report.py --mb 1000`.

The trace is made as `make_trace.py` does and ingested first, which is timed apart. CPU seconds are user and system time
of the whole process: on a machine that does other things, too, they say more than the wall clock.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAMPLE = Path("sample_traces/resnet18-1gpu/torch/rank-0.trace.json.gz")


def timed(arguments: list[str]) -> str:
    """Run `analyze` with these arguments and nothing kept; how long it took, in words. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRACEQUARRY_CACHE": cache}
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "analyze", *arguments], stdout=subprocess.DEVNULL, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    cpu = usage.ru_utime + usage.ru_stime
    return f"{took:6.1f} s wall{cpu:6.1f} s CPU{usage.ru_maxrss / 1e6:6.2f} GB"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=1000, help="size of the trace")
    parser.add_argument("--source", type=Path, default=SAMPLE, help="the trace whose events are repeated")
    parser.add_argument("--store", type=Path, help="keep the store here, and use it if it is there")
    parser.add_argument("--times", type=int, default=3, help="how often the report is made")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    store = options.store or folder / "store"
    try:
        if not (store / "store.json").exists():
            trace = folder / "trace.json"
            maker = Path(__file__).with_name("make_trace.py")
            subprocess.run(
                [sys.executable, str(maker), str(options.source), str(trace), "--mb", str(options.mb)], check=True
            )
            print(f"ingest     {timed(['ingest', str(trace), '--store', str(store)])}", flush=True)
            trace.unlink()
        page = folder / "report.html"
        for _ in range(options.times):
            print(f"report     {timed(['report', str(store), '-o', str(page)])}", flush=True)
        print(f"page       {page.stat().st_size / 1e6:6.2f} MB")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
