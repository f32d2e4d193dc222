"""Imported by the process that commands of `analyze` are forked from: what each of them would make for itself."""

import gc
import json
import tempfile
from functools import cache
from pathlib import Path

import typer.main

import analyze
from analyze.cli.main import app
from analyze.query import databases
from schemas.kernel_rules import rules

typer.main.get_command = cache(typer.main.get_command)
typer.main.get_command(app)
rules()

# One question: the SQL that it shares with others is parsed, and the first DuckDB of a process takes twice the time of
# another. Those that were made are closed, so that no thread of theirs is left.
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9, "args": {"External id": 1}},
    {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 9, "args": {"External id": 1}},
]
with tempfile.TemporaryDirectory() as folder:
    trace = Path(folder, "t.json")
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    analyze.ingest(trace, store=Path(folder, "store"))
    with analyze.open(Path(folder, "store")) as traces:
        traces.answer("ops", where="profiler = 'torch'").rows()
    del traces
    databases._closed.cache_clear()
    gc.collect()
