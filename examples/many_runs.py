"""A study of many runs as data frames: what each GPU's time goes to, by model and number of GPUs.

python examples/many_runs.py sample_traces
"""

import argparse

import analyze

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("paths", nargs="+")
parser.add_argument("--polars", action="store_true", help="instead of pandas")
options = parser.parse_args()

WHICH = "model IS NOT NULL"
TELLS_APART = ["model", "gpus"]
SHARES = ["compute_pct", "exposed_comm_pct", "exposed_memcpy_pct", "idle_pct"]

with analyze.open(*options.paths) as traces:
    # One row for each GPU of each run; `by` puts the columns of the runs in front.
    answer = traces.where(WHICH).queries.breakdown(by=TELLS_APART)
    if options.polars:
        import polars as pl

        frame = pl.DataFrame(answer)  # Arrow's memory, not a copy of it
        print(frame.group_by(TELLS_APART).agg(pl.len().alias("tracks"), pl.col(SHARES).mean()).sort(TELLS_APART))
    else:
        groups = answer.df().groupby(TELLS_APART)
        print(groups[SHARES].mean().assign(tracks=groups.size()).round(1).to_string())
