"""Time and memory of every query on a big store: `python benchmarks/queries.py --kernels 10000000`.

The store is grown from a recorded run: its rows again and again, one copy after the other in time, with ids and numbers
of steps of their own, on as many ranks as wished. Ranks beyond those recorded are further process groups of the same
shape. Each query is one `analyze query`, in a process of its own, with `--memory` for all that it takes. `--check`
compares sums over the store with those over the run that it was grown from.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from process_cost import Cost, analyze_cost  # noqa: E402

import analyze  # noqa: E402
from analyze.cpus import cpus  # noqa: E402
from analyze.ingestion.process_pool import worker_pool  # noqa: E402
from analyze.ingestion.staging import pool_map  # noqa: E402
from analyze.ingestion.table_files import RowGroupWriter  # noqa: E402
from analyze.ingestion.write_derived_tables import write_derived  # noqa: E402
from analyze.query.duckdb_memory import MEMORY_VARIABLE  # noqa: E402
from analyze.query.query_files import catalog  # noqa: E402
from analyze.store.catalogue import RUN_TABLES  # noqa: E402
from analyze.store.store import StagedFile, Store  # noqa: E402
from analyze.stored_tables import DERIVED_TABLES  # noqa: E402

IDS = ("op_id", "correlation_id", "record_function_id", "python_id", "python_parent_id")
"""0 is none of them."""
SEQUENCES = ("sequence_number", "seq")
"""Negative is none of them."""
GAP_NS = 10_000
STEP = re.compile(r"(ProfilerStep#)(\d+)")
SUMS = {
    "kernel-share": ("calls", "total_ns"),
    "copies": ("bytes",),
    "cuda-api": ("calls",),
    "ops": ("calls", "self_cpu_ns"),
    "collectives": ("calls", "bytes"),
}
"""What grows with the store: columns of answers, `*` for their rows."""


def grow(source: Path, folder: Path, kernels: int, ranks: int) -> Fraction:
    """Make a store from the torch run of SOURCE, with at least so many kernels over so many ranks.

    Returns how many times the rows of the run it holds.
    """
    with source_store(source) as recorded:
        run_id, run = next((r, x) for r, x in recorded.snapshot.runs.items() if "kernels" in x.tables)
        tables = {
            (table, rank): rows_of(recorded.folder / file.path, rank)
            for table, files in run.tables.items()
            if table not in DERIVED_TABLES
            for file in files
            for rank in file.ranks
        }
    there = sorted(run.ranks)
    spans = [span(t) for t in tables.values() if "start_ns" in t.column_names]
    period = max(end for _, end in spans) - min(start for start, _ in spans) + GAP_NS
    # Each copy's follow on those of the one before, as those of a long recording do.
    ids = 1 + max(pc.max(t[c]).as_py() or 0 for t in tables.values() for c in IDS + SEQUENCES if c in t.column_names)
    steps = max(len(step_numbers(t)) for (name, _), t in tables.items() if name == "ranges")
    of_all = sum(t.num_rows for (name, _), t in tables.items() if name == "kernels")
    copies = -(-kernels * len(there) // (of_all * ranks))
    store = Store(folder)
    run.tables, run.world_size = {}, ranks
    with store.lock(), store.staging() as staging:

        def written_file(table: str, rows: pa.Table, rank: int) -> StagedFile:
            path = staging / table / f"{rank}.parquet"
            further = rank // len(there) * len(there)
            made = of_job(rows, ranks) if table in RUN_TABLES else of_rank(rows, rank, further)
            path.parent.mkdir(exist_ok=True)
            with RowGroupWriter(path, made.schema) as writer:
                for copy in range(copies if "start_ns" in rows.column_names else 1):
                    writer.write(shifted(made, copy, period, ids, steps))
            return StagedFile(table, [rank], path)

        files = [
            (table, rows, rank)
            for (table, first), rows in tables.items()
            for rank in (range(there.index(first), ranks, len(there)) if table not in RUN_TABLES else [first])
        ]
        with ThreadPoolExecutor(cpus()) as threads:
            staged = list(threads.map(written_file, *zip(*files, strict=True)))
        written = {(s.table, s.ranks[0]): s.path for s in staged if s.table not in RUN_TABLES}
        began = time.perf_counter()
        with worker_pool(cpus()) as pool:
            derived = write_derived(written, run_id, staging, pool_map(pool, cpus()))
        print(f"derived {len(derived)} tables in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        staged += [StagedFile(table, [rank], path) for (table, rank), path in derived.items()]
        store.commit(run_id, run, staged)
    return Fraction(copies * ranks, len(there))


@contextmanager
def source_store(source: Path) -> Iterator[Store]:
    """A store of the recorded run."""
    with tempfile.TemporaryDirectory() as scratch:
        analyze.ingest(source, store=Path(scratch), jobs=1)
        yield Store(Path(scratch))


def span(rows: pa.Table) -> tuple[int, int]:
    """First start and last end."""
    lengths = pc.fill_null(rows["dur_ns"], 0) if "dur_ns" in rows.column_names else 0
    return pc.min(rows["start_ns"]).as_py(), pc.max(pc.add(rows["start_ns"], lengths)).as_py()


def rows_of(path: Path, rank: int) -> pa.Table:
    """The rows of a Parquet file that are of a rank, or of the whole run."""
    rows = pq.read_table(path, partitioning=None)
    return rows.filter(pc.equal(rows["rank"], rank)) if "rank" in rows.column_names else rows


def step_numbers(ranges: pa.Table) -> set[int]:
    """The numbers of the steps that ranges are of."""
    found = (STEP.fullmatch(name) for name in pc.unique(ranges["name"]).to_pylist() if name)
    return {int(m[2]) for m in found if m}


def of_job(rows: pa.Table, ranks: int) -> pa.Table:
    """Rows of a run, of so many ranks."""
    for name in {"ranks", "world_size"} & set(rows.column_names):
        rows = replaced(rows, name, pa.repeat(pa.scalar(ranks, pa.int32()), rows.num_rows))
    return rows


def of_rank(rows: pa.Table, rank: int, further: int) -> pa.Table:
    """Rows of a rank of the job, whose groups have ranks that are so much higher."""
    rows = replaced(rows, "rank", pa.repeat(pa.scalar(rank, pa.int32()), rows.num_rows))
    for name in ("group_ranks", "ranks"):
        if name in rows.column_names and further:
            higher = {
                v: re.sub(r"\d+", lambda m: str(int(m[0]) + further), v) for v in pc.unique(rows[name]).to_pylist() if v
            }
            rows = renamed(rows, name, higher)
    return rows


def shifted(rows: pa.Table, copy: int, period: int, ids: int, steps: int) -> pa.Table:
    """A copy of rows, later by so many periods, with ids and steps of its own."""
    if not copy:
        return rows
    for name in rows.column_names:
        column = rows[name]
        if name == "start_ns":
            rows = replaced(rows, name, pc.add(column, copy * period))
        elif name in IDS + SEQUENCES:
            some = pc.greater(column, 0) if name in IDS else pc.greater_equal(column, 0)
            rows = replaced(rows, name, pc.if_else(some, pc.add(column, copy * ids), column))
        elif name == "name" and "origin" in rows.column_names:
            later = {
                v: m[1] + str(int(m[2]) + copy * steps)
                for v in pc.unique(column).to_pylist()
                if v and (m := STEP.fullmatch(v))
            }
            rows = renamed(rows, name, later)
    return rows


def replaced(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """Rows with other values in a column."""
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)


def renamed(rows: pa.Table, name: str, texts: dict[str, str]) -> pa.Table:
    """Rows with other texts in a column, where there is one for a value."""
    column = rows[name].unify_dictionaries().combine_chunks()
    words = pa.array([texts.get(v, v) for v in column.dictionary.to_pylist()], column.dictionary.type)
    return replaced(rows, name, pa.DictionaryArray.from_arrays(column.indices, words))


def check(source: Path, store: Path, times: Fraction) -> None:
    """Compare sums over a grown store with those over its source; SystemExit where they are not so many times those."""
    with source_store(source) as recorded, analyze.open(recorded.folder) as small, analyze.open(store) as large:
        for query, columns in SUMS.items():
            for column in columns:
                answers = (traces.query(query).arrow() for traces in (small, large))
                sums = [a.num_rows if column == "*" else pc.sum(a[column]).as_py() for a in answers]
                print(f"{query}.{column}: {sums[0]:,} x {float(times):,.1f} = {sums[1]:,}", flush=True)
                if sums[1] != sums[0] * times:
                    raise SystemExit(f"not {times} times as much")


def query_cost(arguments: list[str], memory: str, seconds: int) -> Cost:
    """Measure one `analyze query` with an empty cache, killed after so many CPU seconds."""
    command = ["query", *arguments, "--limit", "20", "--format", "csv"]
    with tempfile.TemporaryDirectory() as cache:
        return analyze_cost(command, cache, seconds, PYTHONPATH=str(ROOT), **{MEMORY_VARIABLE: memory})


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", nargs="*", help="names, with parameters after a colon: breakdown:window=step")
    parser.add_argument("--kernels", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--source", type=Path, default=ROOT / "sample_traces/resnet18-ddp2")
    parser.add_argument("--store", type=Path, help="keep the grown store here, and use it if it is there")
    parser.add_argument("--check", action="store_true", help="only make the store, and compare sums")
    parser.add_argument("--memory", default="8GB", help="that each query may take")
    parser.add_argument("--seconds", type=int, default=300, help="CPU seconds after which a query is killed")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = asked.store or Path(scratch) / "store"
        if not Store.is_store(store):
            times = grow(asked.source, store, asked.kernels, asked.ranks)
            if asked.check:
                check(asked.source, store, times)
        if asked.check:
            return
        costs = {}
        for text in asked.queries or list(catalog()):
            name, *parameters = text.split(":")
            arguments = [name, str(store)] + [a for p in parameters for a in ("--param", p)]
            cost = costs[text] = query_cost(arguments, asked.memory, asked.seconds)
            print(line(text, cost), file=sys.stderr, flush=True)
        for text, cost in sorted(costs.items(), key=lambda found: -found[1].cpu_s):
            print(line(text, cost))


def line(text: str, cost: Cost) -> str:
    """A line of the table."""
    failed = f"  exit {cost.code}: {cost.error}" if cost.code else ""
    return f"{text:40}{cost.wall_s:8.1f} s, CPU {cost.cpu_s:8.1f} s{cost.peak_gb:8.1f} GB{failed}"


if __name__ == "__main__":
    main()
