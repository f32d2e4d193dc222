"""Reading a large Chrome trace: `analyze ingest` against json.load into a pandas frame, what trace tools usually do.

python benchmarks/ingest.py [--mb 500]

Prints time, throughput and peak memory of both, as processes of their own, and the ratios. Both read the same file,
grown from sample_traces/resnet18-1gpu; the second one stops at the frame and stores nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_traces/resnet18-1gpu/torch/rank-0.trace.json.gz"
FRAME = """
import json, sys
import pandas as pd
with open(sys.argv[1]) as f:
    frame = pd.DataFrame(json.load(f)["traceEvents"])
args = pd.json_normalize(frame["args"].dropna())
print(len(frame), len(args))
"""


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds, and peak memory of the largest process in MB."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=500)
    size = parser.parse_args().mb
    # ru_maxrss of a child starts at its parent's size when it is forked.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 200 * 1024
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        subprocess.run(
            [sys.executable, Path(__file__).with_name("make_trace.py"), SAMPLE, trace, "--mb", str(size)], check=True
        )
        bytes_ = trace.stat().st_size
        ours = [sys.executable, "-m", "analyze", "ingest", str(trace), "--store", str(Path(folder) / "store")]
        results = {
            "analyze ingest": measure(ours),
            "json.load + pandas": measure([sys.executable, "-c", FRAME, str(trace)]),
        }
    for name, (seconds, megabytes) in results.items():
        print(f"{name:<20} {seconds:6.1f} s  {bytes_ / 1e6 / seconds:6.0f} MB/s  peak {megabytes:7,.0f} MB")
    (a, b), (c, d) = results.values()
    print(f"ratio: {c / a:.1f} x faster, {d / b:.1f} x less memory")


if __name__ == "__main__":
    main()
