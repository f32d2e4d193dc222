"""A store of thousands of runs takes little memory for each."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_cli
from support import ROOT
from traces import kernel, write_trace

RUNS = 3000
MEMORY_MB = 500
"""Some 200 are used; a list of all ranks in each row took 950."""
PEAK_MB = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, file=sys.stderr)
"""
"""Run a command and print its peak memory. A small process does this: Linux counts the memory of the process that
starts a program as that program's, and the tests' own process may hold 800 MB."""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory in KiB, as Linux counts it")
def test_many_runs_take_little_memory(tmp_path: Path) -> None:
    store = tmp_path / "store"
    trace = write_trace(tmp_path / "one.json", [kernel("k", 0, 1)])
    assert run_cli("ingest", trace, "--store", store).returncode == 0
    catalogue = json.loads((store / "store.json").read_text())
    [(run_id, run)] = catalogue["runs"].items()
    [file] = run["tables"]["runs"]
    row = pq.ParquetFile(store / file["path"]).read()
    at = row.schema.get_field_index("run_id")
    catalogue["runs"] = {}
    for n in range(RUNS):
        name = f"run-{n:05}"
        path = store / file["path"].replace(run_id, name)
        path.parent.mkdir(parents=True)
        named = pa.array([name]).dictionary_encode().cast(row.schema.field(at).type)
        pq.write_table(row.set_column(at, row.schema.field(at), named), path)
        own = {"path": str(path.relative_to(store)), "ranks": [0]}  # of unknown size, as in a large store
        catalogue["runs"][name] = run | {"files": [], "tables": {"runs": [own]}}
    (store / "store.json").write_text(json.dumps(catalogue))
    command = [sys.executable, "-m", "analyze", "sql", "SELECT count(*) AS n FROM runs", str(store), "-f", "csv"]
    done = subprocess.run([sys.executable, "-c", PEAK_MB, *command], capture_output=True, cwd=ROOT, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["n", str(RUNS)]
    assert int(done.stderr) < MEMORY_MB
