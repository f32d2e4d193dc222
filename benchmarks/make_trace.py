"""Grow a recorded Chrome trace to any size: copies of its events, one after the other in time, with ids of their own.

python benchmarks/make_trace.py sample_traces/resnet18-1gpu/torch/rank-0.trace.json.gz big.json --mb 1000
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BEHIND = re.compile(rb'\s*\],\s*"traceName"')
_SHIFTED = re.compile(
    rb'("(?:ts|id|External id|correlation|Ev Idx|Sequence number|Python id|Python parent id)": )(\d+)(?:\.(\d{3}))?'
)
_LENGTH = re.compile(rb'"ts": (\d+)\.(\d{3}), "dur": (\d+)\.(\d{3})')


def grow(source: Path, target: Path, size_bytes: int) -> int:
    """Write TARGET with at least so many bytes, in the layout of the source; returns the number of events."""
    text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    begin, behind = _EVENTS.search(text), _BEHIND.search(text)
    if begin is None or behind is None:
        raise SystemExit(f"{source}: not as Kineto writes traces")
    events = text[begin.end() : behind.start()]
    timed = [(int(a + b), int(c + d)) for a, b, c, d in _LENGTH.findall(events)]
    period = max(start + dur for start, dur in timed) - min(start for start, _ in timed) + 10_000
    ids = 1 + max(int(whole) for _, whole, decimals in _SHIFTED.findall(events) if not decimals)
    pieces: list[bytes] = []
    numbers: list[tuple[int, bool]] = []
    at = 0
    for found in _SHIFTED.finditer(events):
        pieces.append(events[at : found.end(1)])
        numbers.append((int(found[2] + (found[3] or b"")), found[3] is not None))
        at = found.end()
    copy = 0
    with target.open("wb") as f:
        f.write(text[: begin.end()])
        while f.tell() < size_bytes:
            f.write(b",\n  " if copy else b"")
            for piece, (number, is_time) in zip(pieces, numbers, strict=True):
                ns = number + copy * period
                f.write(piece + (b"%d.%03d" % divmod(ns, 1000) if is_time else b"%d" % (number + copy * ids)))
            f.write(events[at:])
            copy += 1
        f.write(text[behind.start() :])
    return copy * len(re.findall(rb'"ph":', events))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--mb", type=int, default=1000, help="size in MB")
    args = parser.parse_args()
    events = grow(args.source, args.target, args.mb * 1_000_000)
    print(f"{args.target}: {args.target.stat().st_size / 1e6:,.0f} MB, {events:,} events")


if __name__ == "__main__":
    main()
