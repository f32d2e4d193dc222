"""The process that runs one SELECT of a user: see `analyze.query.sql_process`."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from analyze.errors import InputError, MachineError
from analyze.query.sql_process import OF_THE_MACHINE, TYPE, UNIT
from schemas.files import os_error_sentence

_ROWS = 100_000
"""Rows of a batch."""


def main() -> None:
    """Answer the request on stdin."""
    rows = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # DuckDB prints a progress bar, which is no row
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        _answer(request, rows)
    except InputError as e:
        code, said = 2, str(e)
    except MachineError as e:
        code, said = OF_THE_MACHINE, str(e)
    except MemoryError:
        code, said = OF_THE_MACHINE, "out of memory"
    except KeyboardInterrupt:
        code, said = 130, ""
    except BrokenPipeError:  # nobody reads the rest
        code, said = 0, ""
    except OSError as e:
        code, said = OF_THE_MACHINE, os_error_sentence(e)
    else:
        code, said = 0, ""
    sys.stderr.write(said)
    sys.stderr.flush()
    os._exit(code)


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(1)


def _answer(request: Mapping[str, Any], rows: IO[bytes]) -> None:
    import msgspec
    import pyarrow as pa

    from analyze.query import duckdb_memory
    from analyze.query.databases import empty_database
    from analyze.query.engine import Engine
    from analyze.query.process_limits import forbid_files, limit_memory
    from analyze.query.query_files import parse
    from analyze.query.selection import Selection
    from analyze.store.object_storage import store_from_json

    forbid_files()
    limit_memory(duckdb_memory.process_bytes(empty_database()))
    stores = list(map(store_from_json, request["stores"]))
    engine = Engine(stores, msgspec.convert(request["selection"], Selection), read_only=True)
    if request["sql"] is not None:
        answer = engine.sql(request["sql"])
    else:
        options = request["options"]
        answer = engine.query(
            parse(Path(request["query"])), request["params"], options["sort"], options["limit"], options["select"],
            options["only"],
        )  # fmt: skip
    relation = answer.relation
    with answer.taken():
        types, found = relation.types, relation.limit(0).to_arrow_table().schema
    fields = [
        pa.field(column.name, f.type, f.nullable, {TYPE: str(kind).encode(), UNIT: column.unit.encode()})
        for column, f, kind in zip(answer.columns, found, types, strict=True)
    ]
    schema = pa.schema(fields)
    # Not from_pylist, which imports pandas if installed: 0.2 s.
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    with answer.taken(), pa.ipc.new_stream(rows, schema) as out:
        out.write_batch(empty)  # the columns are known before the rows are computed
        rows.flush()
        for batch in relation.to_arrow_reader(_ROWS):
            out.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    rows.flush()
