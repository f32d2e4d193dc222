"""Time and memory of `analyze report` on a big trace: `python benchmarks/report.py --mb 1000`.

The trace is made as `make_trace.py` does and ingested first, which is timed apart. CPU seconds are user and system time
of the whole process: on a machine that does other things, too, they say more than the wall clock.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from process_cost import analyze_cost

SAMPLE = Path("sample_traces/resnet18-1gpu/torch/rank-0.trace.json.gz")


def timed(arguments: list[str]) -> str:
    """Run `analyze ARGUMENTS` with an empty cache; return its time and memory in words. Raises SystemExit."""
    with tempfile.TemporaryDirectory() as cache:
        cost = analyze_cost(arguments, cache)
    if cost.code:
        raise SystemExit(f"analyze {arguments} failed: {cost.error}")
    return f"{cost.wall_s:6.1f} s wall{cost.cpu_s:6.1f} s CPU{cost.peak_gb:6.2f} GB"


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
