"""Puts what torch logged of torch.compile (TORCH_TRACE) into the run folder, compressed and without secrets.

torch writes a log for each process that compiles something, and none for others. Each process of the user's program has
a folder of its own (injected/compile_log.py); those of a built-in model share one, and the names have the rank.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from collect.injected.compile_log import LOGS, WORKERS
from collect.redact import Redactor
from schemas.files import part_file

SUFFIX = ".torch_trace.log.gz"
_AT_ONCE = 1 << 20
"""Characters that are searched at once: faster than by line, and finds keys of several lines."""
_PROCESS = re.compile(rb"[A-Z]\d{4} [\d:.]+ +(\d+) ")
_RANK = re.compile(r"_rank_(\d+)_")


def keep_compile_logs(scratch: Path, folder: Path) -> None:
    """Write the logs of all processes into the folder of a pass. Raises OSError."""
    redactor = Redactor()
    for path in sorted((scratch / LOGS).glob("*/*.log")):
        owner = path.parent.name
        if owner == WORKERS:
            rank = _RANK.search(path.name)
            stem = f"rank-{rank[1] if rank else 0}"
        elif owner.endswith(f"-{_process(path)}"):
            stem = owner
        else:
            continue  # of a forked child, or of a program that inherited the variable
        with (
            path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as log,
            part_file(folder / f"{stem}{SUFFIX}") as part,
            gzip.open(part, "wt", 6, "utf-8", "surrogateescape", "\n") as out,
        ):
            while lines := log.readlines(_AT_ONCE):
                out.write(redactor.tokens("".join(lines)))


def _process(path: Path) -> str:
    with path.open("rb") as log:
        found = _PROCESS.match(log.readline(1 << 10))
    return found[1].decode() if found else ""
