"""Time and memory of every query on a big store: `python benchmarks/queries.py --kernels 10000000`.

The store is grown from a recorded run: its rows again and again, one copy after the other in time, with ids of their
own, on as many ranks as wished. Each query is one `analyze query`, in a process of its own. DuckDB spills what does not
fit into memory, so the peak depends on the machine.
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

import duckdb

from analyze.query.query_files import catalog
from analyze.store.store import Store
from schemas.tables import TABLES

SHIFTED_IDS = (
    "op_id",
    "correlation_id",
    "sequence_number",
    "record_function_id",
    "seq",
    "python_id",
    "python_parent_id",
)


def grow(source: Path, store: Path, kernels: int, ranks: int) -> None:
    """Make STORE from the first torch run of SOURCE, with at least so many kernels over so many ranks."""
    shutil.rmtree(store, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "analyze", "ingest", str(source), "-s", str(store)], check=True)
    snapshot = Store(store).snapshot
    run_id, run = next(iter(snapshot.runs.items()))
    recorded = run.tables["kernels"]
    con = duckdb.connect()

    def scan(table: str, rank: int) -> str:
        return f"read_parquet('{store}/{table}/run_id={run_id}/rank-{rank}.parquet', hive_partitioning = false)"

    timed = [t for t in run.tables if any(c.name == "start_ns" for c in TABLES[t].columns)]
    spans = " UNION ALL ".join(
        f"SELECT min(start_ns) AS lo, max(start_ns + {'dur_ns' if t != 'memory_events' else '0'}) AS hi"
        f" FROM {scan(t, r)}"
        for t in timed
        for r in run.tables[t]
    )
    period = con.execute(f"SELECT max(hi) - min(lo) + 10000 FROM ({spans})").fetchall()[0][0]
    per_copy = sum(
        con.execute(f"SELECT count(*) FROM {scan('kernels', recorded[r % len(recorded)])}").fetchall()[0][0]
        for r in range(ranks)
    )
    copies = -(-kernels // per_copy)
    grown = store / "grown"
    for table in timed:
        (grown / table).mkdir(parents=True)
        for rank in range(ranks):
            from_rank = recorded[rank % len(recorded)]
            if from_rank not in run.tables[table]:
                continue
            names = [c.name for c in TABLES[table].columns]
            changed = {"rank": str(rank), "start_ns": f"start_ns + i * {period}"}
            changed |= {n: f"CASE WHEN {n} > 0 THEN {n} + i * 10000000 ELSE {n} END" for n in SHIFTED_IDS}
            if table == "ranges":
                steps = f"(SELECT count(*) FROM {scan('ranges', from_rank)} WHERE origin = 'profiler_step')"
                changed["name"] = (
                    "CASE WHEN origin = 'profiler_step' THEN"
                    f" 'ProfilerStep#' || (regexp_extract(name, '\\d+$')::BIGINT + i * {steps}) ELSE name END"
                )
            listed = ", ".join(f"({changed[n]})::{_type(table, n)} AS {n}" if n in changed else n for n in names)
            con.execute(
                f"COPY (SELECT {listed} FROM range({copies}) t(i), {scan(table, from_rank)} ORDER BY start_ns)"
                f" TO '{grown}/{table}/rank-{rank}.parquet' (COMPRESSION zstd)"
            )
        run.tables[table] = list(range(ranks))
    for table in set(run.tables) - set(timed):
        shutil.copytree(store / table / f"run_id={run_id}", grown / table)
    writing = Store(store)
    with writing.lock():
        files = {(t, r): grown / t / f"rank-{r}.parquet" for t, there in run.tables.items() for r in there}
        writing.commit(run_id, run, files)
        writing.sweep()
    shutil.rmtree(grown)


def _type(table: str, column: str) -> str:
    kind = next(c.type for c in TABLES[table].columns if c.name == column)
    return {"int32": "INTEGER", "int64": "BIGINT", "string": "VARCHAR"}[kind]


def timed_query(arguments: list[str], seconds: float) -> tuple[float, float, int]:
    """Wall seconds, peak GB and exit code of one `analyze query`; killed after so many seconds."""
    began = time.perf_counter()
    pid = os.fork()
    if not pid:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.execv(
            sys.executable, [sys.executable, "-m", "analyze", "query", *arguments, "--limit", "20", "--format", "csv"]
        )
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return time.perf_counter() - began, usage.ru_maxrss / 1e6, os.waitstatus_to_exitcode(status)
        if time.perf_counter() - began > seconds:
            os.kill(pid, 9)
        time.sleep(0.01)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("queries", nargs="*", help="names, with parameters after a colon: breakdown:window=step")
    parser.add_argument("--kernels", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--source", type=Path, default=Path("sample_traces/resnet18-ddp2"))
    parser.add_argument("--store", type=Path, help="keep the grown store here, and use it if it is there")
    parser.add_argument("--seconds", type=float, default=300, help="longest time for a query")
    options = parser.parse_args()
    store = options.store or Path(tempfile.mkdtemp()) / "store"
    if not Store.is_store(store):
        grow(options.source, store, options.kernels, options.ranks)
    for text in options.queries or list(catalog()):
        name, *parameters = text.split(":")
        arguments = [name, str(store)] + [a for p in parameters for a in ("--param", p)]
        took, peak, code = timed_query(arguments, options.seconds)
        print(f"{text:40}{took:8.1f} s{peak:8.1f} GB{'' if code == 0 else f'  exit {code}'}", flush=True)
    if not options.store:
        shutil.rmtree(store.parent)


if __name__ == "__main__":
    main()
