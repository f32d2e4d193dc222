"""A store of many ranks: how long it takes to open, to ask all ranks, and to ask one, before and after `compact`.

python benchmarks/many_ranks.py [--ranks 2000] [--rows 300] [--packed] [--keep FOLDER]

The ranks are copies of rank 0 of sample_traces/resnet18-ddp2, so many rows of each table at most. `--packed` makes the
store as `analyze compact` leaves it, at once. Times are of whole processes; each is the least of three.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from process_cost import analyze_cost  # noqa: E402

import analyze  # noqa: E402
from analyze.ingestion import file_merging  # noqa: E402
from analyze.ingestion.compact import compact  # noqa: E402
from analyze.store.catalogue import RUN_TABLES  # noqa: E402
from analyze.store.store import StagedFile, Store  # noqa: E402

SAMPLE = ROOT / "sample_traces/resnet18-ddp2"
ASKED = {
    "start: SELECT 1": ["sql", "SELECT 1 AS one"],
    "kernel-share": ["query", "kernel-share", "-f", "csv"],
    "kernel-share, rank = 7": ["query", "kernel-share", "-f", "csv", "--where", "rank = 7"],
    "breakdown, rank = 7": ["query", "breakdown", "-f", "csv", "--where", "rank = 7"],
}


def make(folder: Path, ranks: int, rows: int, one_file: bool) -> Store:
    """A store of one run with so many ranks."""
    with tempfile.TemporaryDirectory() as scratch:
        sample = Store(Path(scratch) / "sample")
        analyze.ingest(SAMPLE, store=sample.folder, jobs=1)
        sample = Store(sample.folder)
        [(run_id, run)] = sample.snapshot.runs.items()
        tables = {
            table: pq.read_table(sample.folder / files[0].path, partitioning=None)
            for table, files in run.tables.items()
        }
    store = Store(folder)
    run.tables, run.world_size = {}, ranks
    with store.lock(), store.staging() as staging:
        staged = []
        for table, found in tables.items():
            found = found if table in RUN_TABLES else found.slice(0, rows)
            copies = [0] if table in RUN_TABLES else range(ranks)
            for rank in [copies] if one_file or table in RUN_TABLES else [[r] for r in copies]:
                path = staging / table / f"{rank[0]}.parquet"
                write(path, found, rank)
                staged.append(StagedFile(table, list(rank), path))
        store.commit(run_id, run, staged)
    return store


def write(path: Path, rows: pa.Table, ranks: list[int] | range) -> None:
    """Rows under each of the ranks, in row groups as `analyze compact` makes them."""
    at = rows.schema.get_field_index("rank")
    with file_merging._Writer(path, rows.schema) as writer:
        step = max(1, file_merging._LEAST_ROWS // max(rows.num_rows, 1))
        for start in range(0, len(ranks), step):
            some = ranks[start : start + step]
            copies = [
                rows if at < 0 else rows.set_column(at, "rank", pa.repeat(pa.scalar(r, pa.int32()), rows.num_rows))
                for r in some
            ]
            writer.write(pa.concat_tables(copies))
            writer.end()


def measure(arguments: list[str], store: Path) -> tuple[float, float, float]:
    """Measure `analyze ARGUMENTS STORE`: the least wall and CPU seconds of three runs, and the peak memory in MB."""
    costs = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            costs.append(analyze_cost([*arguments, str(store)], cache, PYTHONPATH=str(ROOT)))
        if costs[-1].code:
            raise SystemExit(f"analyze {arguments} failed: {costs[-1].error}")
    return min(c.wall_s for c in costs), min(c.cpu_s for c in costs), costs[-1].peak_gb * 1e3


def show(store: Store) -> None:
    """Print what a store is and how long each question takes."""
    store = Store(store.folder)
    [run] = store.snapshot.runs.values()
    files = list(run.table_files)
    size = sum(f.bytes or 0 for f in files) / 1e6
    catalogue = (store.folder / "store.json").stat().st_size / 1e6
    print(f"{len(run.ranks):,} ranks: {len(files):,} files, {size:,.1f} MB; store.json {catalogue:.2f} MB")
    for name, arguments in ASKED.items():
        seconds, cpu, memory = measure(arguments, store.folder)
        print(f"  {name:<26}{seconds:7.2f} s, CPU {cpu:6.2f} s {memory:7.0f} MB")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        began = time.perf_counter()
        store = make(asked.keep or Path(scratch) / "store", asked.ranks, asked.rows, asked.packed)
        print(f"made in {time.perf_counter() - began:.1f} s")
        show(store)
        if not asked.packed:
            began = time.perf_counter()
            result = compact(Store(store.folder))
            print(f"compact: {result.bytes / 1e6:,.1f} MB in {time.perf_counter() - began:.1f} s")
            show(store)


if __name__ == "__main__":
    main()
