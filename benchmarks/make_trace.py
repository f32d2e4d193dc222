"""Grow a recorded Chrome trace to any size: copies of its events, one after the other in time, with ids of their own.

python benchmarks/make_trace.py sample_traces/resnet18-1gpu/torch/rank-0.trace.json.gz big.json --mb 1000
"""

from __future__ import annotations

import argparse
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

SHIFTED_ARGS = ("External id", "correlation", "Ev Idx", "Sequence number")


def load(path: Path) -> dict[str, Any]:
    """A trace with its numbers as exact decimals."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text, parse_float=Decimal)


def grow(source: Path, target: Path, size_bytes: int) -> int:
    """Write TARGET with at least so many bytes, in Kineto's own layout; returns the number of events."""
    trace = load(source)
    events = trace.pop("traceEvents")
    timed = [e for e in events if e.get("ph") == "X" and "dur" in e]
    begin = min(Decimal(e["ts"]) for e in timed)
    period = max(Decimal(e["ts"]) + Decimal(e["dur"]) for e in timed) - begin + 10
    ids = 1 + max(int(e.get("args", {}).get(k, 0)) for e in timed for k in SHIFTED_ARGS)
    written = 0
    with target.open("w", encoding="utf-8") as f:
        f.write(json.dumps(trace, default=str)[:-1] + ', "traceEvents": [\n')
        copy = 0
        while f.tell() < size_bytes:
            for event in events:
                f.write((",\n" if written else "") + "  " + _shifted(event, copy * period, copy * ids))
                written += 1
            copy += 1
        f.write("\n  ]}\n")
    return written


def _shifted(event: dict[str, Any], by_us: Decimal, by_id: int) -> str:
    copy = dict(event)
    if "ts" in copy:
        copy["ts"] = Decimal(copy["ts"]) + by_us
    if isinstance(copy.get("id"), int):
        copy["id"] += by_id
    if "args" in copy:
        copy["args"] = {
            k: v + by_id if k in SHIFTED_ARGS and isinstance(v, int) else v for k, v in copy["args"].items()
        }
    # Decimals must be written as numbers with all their digits, which json cannot do: mark them, then unquote.
    text = json.dumps(copy, indent=2, default=lambda d: f"@{d}@")
    return text.replace('"@', "").replace('@"', "").replace("\n", "\n  ")


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
