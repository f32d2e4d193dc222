"""The process that runs the queries of pages, one after the other (see `analyze.serve.query_pool`).

Stdin and stdout have a JSON message per line. The first request says what is served; each further one is a query.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import duckdb
import msgspec

from analyze.errors import InputError, MachineError
from analyze.query import duckdb_memory
from analyze.query.databases import empty_database
from analyze.query.process_limits import V8_RESERVES, limit_memory
from analyze.query.selection import Selection
from analyze.query.sql_checks import sentence
from analyze.serve.site import Site
from analyze.store.object_storage import store_from_json


def main() -> None:
    """Answer until stdin ends, which it does when the server stops."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which ends this process
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries goes to stderr
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    served = _Served()
    while True:
        answers.write(json.dumps(served.said(json.loads(lines.get()))) + "\n")
        answers.flush()


class _Served:
    """The site, opened by the first message."""

    def __init__(self) -> None:
        self._site: Site | None = None

    def said(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the text of a page or part, the path of a file, or an error with its HTTP status."""
        try:
            if self._site is not None:
                return {"answer": str(getattr(self._site, message["do"])(*message["with"]))}
            self._site = _site(message)
            return {"answer": ""}
        except (InputError, duckdb.Error) as e:
            return {"error": sentence(e), "status": 400}
        except MachineError as e:
            return {"error": str(e), "status": 503}
        except MemoryError:
            return {"error": "out of memory", "status": 503}
        except Exception as e:
            traceback.print_exc(file=sys.stderr)
            return {"error": f"internal error: {type(e).__name__}", "status": 500}


def _site(served: Mapping[str, Any]) -> Site:
    limit_memory(duckdb_memory.process_bytes(empty_database()) + V8_RESERVES)
    stores = list(map(store_from_json, served["stores"]))
    folders, folder = [Path(f) for f in served["folders"]], Path(served["folder"])
    return Site(stores, served["paths"], folders, msgspec.convert(served["selection"], Selection), folder)


def _read(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)
