"""`python -m tests.fuzz`: damage real files for a while and say what broke."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.cases import SOURCES
from tests.fuzz.run import Tally, Worker, run_case


def main() -> int:
    """Run; the exit code is 1 if anything broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--inputs", type=int, help="how many of each source, instead of --seconds")
    parser.add_argument("--seed", type=int, default=0, help="which series of inputs")
    parser.add_argument("--only", type=int, help="one input of the series, by its number")
    parser.add_argument("--source", choices=sorted(SOURCES), action="append", help="may be repeated; default: all")
    parser.add_argument("--keep", type=Path, default=Path(".cache/fuzz"), help="folder for inputs that broke something")
    options = parser.parse_args()

    sources = options.source or list(SOURCES)
    tallies = {s: Tally() for s in sources}
    worker = Worker()
    end = time.monotonic() + options.seconds
    number = options.only or 0
    try:
        while True:
            for source in sources:
                run_case(worker, tallies[source], source, options.seed, number, options.keep)
            number += 1
            if options.only is not None or (number == options.inputs if options.inputs else time.monotonic() > end):
                break
    except KeyboardInterrupt:
        print("stopped")
    finally:
        worker.close()
    for source, tally in tallies.items():
        print(f"{source}: {tally.inputs} inputs, {tally.refused} refused, {tally.with_loss} read with a loss reported, "
              f"{len(tally.failures)} failed")  # fmt: skip
        for said, times in tally.refusals.most_common(5):
            print(f"    {times} x {said}")
    failures = [f for tally in tallies.values() for f in tally.failures]
    for place, times in Counter(f.place for f in failures).most_common():
        first = next(f for f in failures if f.place == place)
        print(f"\n{times} x {place}\n    {first.again}")
        if options.only is not None:
            print(first.said)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
