"""A Chrome trace of a run, written from the store: opens in the Perfetto UI, and reads back as the same rows.

Events go to the file as they come out of the tables, one after the other, so a trace of any size takes little memory.
Times are microseconds with three decimals, written from the integers; they count from the first event, and the zero
stands in `baseTimeNanoseconds`, as torch.profiler writes it.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import duckdb

from analyze.errors import InputError
from analyze.query.plain_sql import sentence
from analyze.trace.events import ALLOCATIONS, Scope, events_of
from analyze.trace.places import Places
from analyze.whole_file import ending_of, whole_file

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_COMPRESSION = 5
"""Of gzip: half the time of the default, and files 5 % larger."""

_MOST_MS = 1e12
"""Of a window's ends: 30 years."""

_TIMED = ("kernels", "memcpys", "memsets", "cuda_calls", "cpu_ops", "ranges")


class Exported(NamedTuple):
    """What was written, and what was left out of it (in a sentence, or empty).

    `base_ns` is the zero of the trace on the clock of the recording; its events are from `first_ns` to `last_ns`.
    """

    run_id: str
    events: int
    counters: int
    flows: int
    base_ns: int
    first_ns: int
    last_ns: int
    note: str = ""


def check_output(output: Path) -> None:
    """Raise InputError unless a file has the name of a trace, by which the Perfetto UI and `analyze` know it."""
    ending_of(output, (".json.gz", ".json"), "a trace is written as .json.gz or .json", ".json")


def export(
    engine: Engine,
    output: Path,
    *,
    from_ms: float | None = None,
    to_ms: float | None = None,
    counters: bool = True,
    critical_path: bool = False,
) -> Exported:
    """Write the one run of an engine as a Chrome trace; gzip-compressed if the name ends in .gz.

    `from_ms`, `to_ms`: a window, in ms from the first event; events that reach into it are whole. `counters`: whether
    tracks of queue depth, copy bandwidth, GPU busy and allocated memory are added. `critical_path`: whether the
    critical path of each rank is drawn over it, as a track of its pieces and arrows between them. Raises InputError.
    """
    check_output(output)
    for option, value in (("--from-ms", from_ms), ("--to-ms", to_ms)):
        if value is not None and not abs(value) <= _MOST_MS:
            raise InputError(f"trace: {option} {value:g} is not a time in ms")
    if len(engine.run_ids) != 1:
        some = ", ".join(engine.run_ids[:3]) + (", ..." if len(engine.run_ids) > 3 else "")
        found = f"there are {len(engine.run_ids)} ({some})" if engine.run_ids else "there is none"
        raise InputError(f"trace: one run makes a trace, and {found}; choose with --where \"run_id = '...'\"")
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise InputError(f"trace: --from-ms {from_ms:g} is not before --to-ms {to_ms:g}")
    try:
        with engine.alone():
            scope = _scope(engine, from_ms or 0.0, to_ms)
            with _writing(output) as file:
                return _write(scope, file, counters, critical_path)
    except duckdb.Error as e:
        raise InputError(f"trace: {sentence(e)}") from e


def _scope(engine: Engine, from_ms: float, to_ms: float | None) -> Scope:
    tables = " UNION ALL ".join(f"SELECT min(start_ns) AS first_ns FROM {t}" for t in (*_TIMED, ALLOCATIONS))
    row = engine.execute(f"SELECT min(first_ns) FROM ({tables})").fetchone()
    if row is None or row[0] is None:
        raise InputError(f"trace: {engine.run_ids[0]} has no timed events: there is nothing to draw")
    base = int(row[0])
    end = None if to_ms is None else base + round(to_ms * 1e6)
    scope = Scope(engine, base, base + round(from_ms * 1e6), end, Places(engine))
    scope.places.lay_out(engine, scope.overlapping())
    return scope


@contextmanager
def _writing(output: Path) -> Iterator[TextIO]:
    """The file, in place when it is whole."""
    with whole_file(output) as part, part.open("wb") as raw:
        if output.name.lower().endswith(".gz"):
            # Without a time in it, the same trace is the same file.
            with (
                gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed,
                io.TextIOWrapper(packed, "utf-8") as f,
            ):
                yield f
        else:
            with io.TextIOWrapper(raw, "utf-8") as f:
                yield f


def _write(scope: Scope, file: TextIO, with_counters: bool, with_path: bool) -> Exported:
    [run, *_] = scope.engine.dicts("SELECT * FROM runs ORDER BY run_id")
    file.write(_header(scope, run) + '"traceEvents": [\n')
    counts = {"events": 0, "counters": 0, "flows": 0}
    first = True
    for kind, events in events_of(scope, with_counters, with_path):
        written = 0
        for event in events:
            file.write(event if first else ",\n" + event)
            first = False
            written += 1
        counts[kind] = counts.get(kind, 0) + written
    file.write("\n]}\n")
    # A flow is two events.
    flows = counts["flows"] // 2
    ends = " UNION ALL ".join(
        f"SELECT start_ns, start_ns + coalesce(dur_ns, 0) AS end_ns FROM {t} WHERE {scope.overlapping()}"
        for t in _TIMED
    )
    [(begin, end)] = scope.rows(f"SELECT min(start_ns), max(end_ns) FROM ({ends})")
    if begin is None:
        begin = end = scope.from_ns
    return Exported(
        run["run_id"], counts["events"], counts["counters"], flows, scope.base_ns, begin, end, scope.engine.note
    )


def _header(scope: Scope, run: dict[str, Any]) -> str:
    """The object around the events up to their list, with what the readers of this toolkit look for."""
    fields: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": scope.base_ns}
    fields["run_id"] = run["run_id"]
    if run["host"]:
        fields["host_name"] = run["host"]
    if run["torch_version"]:
        fields["pytorch_version"] = run["torch_version"]
    ranks = scope.engine.execute("SELECT DISTINCT rank FROM run_groups").fetchall()
    if len(ranks) == 1:
        fields["distributedInfo"] = {"rank": ranks[0][0]} | (
            {"world_size": run["world_size"]} if run["world_size"] else {}
        )
    if run["gpu_name"]:
        fields["deviceProperties"] = [{"id": 0, "name": run["gpu_name"]}]
    return json.dumps(fields)[:-1] + ",\n"
