"""A store of thousands of runs takes little memory for each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import ROOT, kernel, run_cli, write_trace

RUNS = 3000
MEMORY_MB = 500
"""Some 200 are used; a list of all ranks in each row took 950."""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory in KiB, as Linux counts it")
def test_memory_of_many_runs(tmp_path: Path) -> None:
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
    # With several threads, each holds rows until those before them are stored: up to 900 MB on a busy machine.
    environment = {**os.environ, "TRACEQUARRY_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True, env=environment) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 and out.split() == ["n", str(RUNS)]
    assert used.ru_maxrss >> 10 < MEMORY_MB
