"""Time of windows of the timeline of a store: `python benchmarks/timeline.py STORE`.

`make_trace.py` and `analyze ingest` make a large store. CPU seconds are those of all threads.
"""

from __future__ import annotations

import argparse
import json
import time

import analyze
from analyze.query.engine import Engine
from analyze.report.timeline import Timeline
from analyze.report.timeline_window import window


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store")
    engine = Engine(analyze.open(parser.parse_args().store).stores)
    timeline = Timeline(engine, engine.run_ids[0])
    times: tuple[int, int] | tuple[()] = ()
    for part in (None, 1, 10, 1_000, 100_000):
        wall, cpu = time.perf_counter(), time.process_time()
        data = window(timeline, *times)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        rectangles = sum(len(lane["t"]) for lane in (*data["rows"], *data["states"]))
        size = len(json.dumps(data, separators=(",", ":"))) / 1e6
        what = "first, whole" if part is None else f"1/{part:,}"
        print(f"{what:14}{wall:6.2f} s wall{cpu:6.2f} s CPU{rectangles:8,} rectangles{size:6.2f} MB")
        first, last = data["span"]
        middle, half = (first + last) // 2, (last - first) // {None: 2, 1: 20, 10: 2_000, 1_000: 200_000}.get(part, 2)
        times = (first, last) if part is None else (middle - half, middle + half)


if __name__ == "__main__":
    main()
