"""The process that ingests what it is told, one input after the other, within limits: `python -m tests.fuzz.worker`.

It reads a JSON object per line and answers with one. It is used again for the next input, which costs 50 ms instead of
a second; `__main__` starts another when it dies.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import analyze
from analyze.errors import InputError
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest as run_ingest
from analyze.store.store import Store

MEMORY = 6 << 30
"""Bytes of address space; a third of it is libraries and threads' reserves."""
CPU_SECONDS = 10.0
"""Of one input; CPU time, as the machine may be busy with other work."""

_WIDE = 50
"""More metrics than a launch has in the long and the text form of the corpus."""


class Hang(BaseException):
    """An input took too long."""


def ingest(path: Path, store: Path) -> Any:
    """Bring a path into a store. Files of less than 1 MiB, as those of the corpus, need no other process."""
    return run_ingest(discover([path]), Store(store), jobs=1)


def kept_rows(store: Path) -> dict[str, int]:
    """Rows in a store by table; of ncu_metrics the lines they came from."""
    kept: Counter[str] = Counter()
    for file in store.rglob("*.parquet"):
        table = file.relative_to(store).parts[0]
        if table != "ncu_metrics":
            kept[table] += pq.read_metadata(file).num_rows
            continue
        metrics = Counter(pq.read_table(file, columns=["launch_id"]).column(0).to_pylist())
        kept[table] += sum(1 if n > _WIDE else n for n in metrics.values())
    return dict(kept)


def _ingest(path: Path) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-store-"))
    try:
        result = ingest(path, folder)
        return {"kept": kept_rows(folder), "lost": result.lost, "warnings": result.warnings}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _store(path: Path) -> dict[str, Any]:
    said = []
    for step in (lambda: analyze.open(path).query("flops").arrow(), lambda: ingest(path.parent / "run", path)):
        try:
            step()
        except InputError as e:
            said.append(str(e))
    return {"kept": {}, "lost": 0, "warnings": said}


def answer(task: dict[str, Any]) -> dict[str, Any]:
    """What came of one input."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        return (_store if task["do"] == "store" else _ingest)(Path(task["path"]))
    except InputError as e:
        return {"error": str(e)}
    except Hang:
        return {"hang": traceback.format_exc()}
    except Exception:
        return {"traceback": traceback.format_exc()}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(*_: object) -> None:
    raise Hang


def main() -> None:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _too_long)
    # Whatever the readers' libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        found = answer(json.loads(line))
        # Not ru_maxrss, which counts the memory of the process that starts this one, too.
        [peak] = re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
        found["peak"] = int(peak) << 10
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
