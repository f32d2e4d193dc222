"""What the check for false timelines costs at ingest: its CPU time, and its share of reading a grown Chrome trace.

    python benchmarks/impossible_work.py [--mb 100]

The trace is grown from sample_traces/resnet18-1gpu and read by one process. The check runs on the staged files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from make_trace import grow

from analyze.ingestion import staging
from analyze.ingestion.drop_impossible_work import drop_impossible_work
from analyze.sources.interface import SourceFile

SAMPLE = Path(__file__).parent.parent / "sample_traces/resnet18-1gpu/torch/rank-0.trace.json.gz"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100, help="size of the trace in MB")
    args = parser.parse_args()
    spent = []

    def timed(*arguments: object) -> None:
        before = time.process_time()
        drop_impossible_work(*arguments)  # type: ignore[arg-type]
        spent.append(time.process_time() - before)

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        events = grow(SAMPLE, trace, args.mb * 1_000_000)
        staging.drop_impossible_work = timed
        for number in range(3):
            before = time.process_time()
            result = staging._write_file("r", SourceFile(trace, "chrome_trace", 0), Path(folder) / str(number))
            total = time.process_time() - before
            assert not result.report.lost
            print(f"{events:,} events, CPU: {total:.2f} s, check {spent[-1]:.3f} s = {100 * spent[-1] / total:.1f} %")


if __name__ == "__main__":
    main()
