"""Write a run as a Chrome trace for the Perfetto UI. Reading it again gives the same rows.

Events are written one by one as they come from the tables, so memory does not grow with the trace. Times are exact
microseconds with three decimals, from the first event; `baseTimeNanoseconds` has the time of that, as in
torch.profiler's traces.
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

from analyze.atomic_output import atomic_output, ending_of
from analyze.errors import InputError
from analyze.query.sql_checks import sentence
from analyze.trace.event_json import Scope, events_of
from analyze.trace.tracks import Tracks

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_COMPRESSION = 5
"""Level of gzip: half the time of the default, files 5 % larger."""

_MOST_MS = 1e12
"""Limit of --from-ms and --to-ms: 30 years."""

_TIMED = ("kernels", "memcpys", "memsets", "cuda_calls", "os_calls", "cpu_ops", "ranges")


class Exported(NamedTuple):
    """Counts of what was written, and a note of what was left out.

    `base_ns`: time 0 of the trace on the clock of the recording. Its events are in [first_ns, last_ns).
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
    """Raise InputError unless a file has an ending that the Perfetto UI and `analyze` read as a trace."""
    ending_of(output, (".json.gz", ".json"), "the name of a trace must end in .json.gz or .json", ".json")


def export(
    engine: Engine,
    output: Path,
    *,
    from_ms: float | None = None,
    to_ms: float | None = None,
    counters: bool = True,
    critical_path: bool = False,
) -> Exported:
    """Write the one run of an engine as a Chrome trace; compressed if the name ends in .gz. Raises InputError.

    `from_ms`, `to_ms`: a window, in ms from the first event; events that overlap it are written whole. `counters`: add
    tracks of queue depth, running work, copy bandwidth and allocated memory. `critical_path`: add the critical path of
    each rank.
    """
    check_output(output)
    for option, value in (("--from-ms", from_ms), ("--to-ms", to_ms)):
        if value is not None and not abs(value) <= _MOST_MS:
            raise InputError(f"trace: {option} {value:g} is not a time in ms")
    if len(engine.run_ids) != 1:
        some = ", ".join(engine.run_ids[:3]) + (", ..." if len(engine.run_ids) > 3 else "")
        found = f"{len(engine.run_ids)} were found ({some})" if engine.run_ids else "none was found"
        raise InputError(f"trace: a trace has one run, and {found}; select one with --where \"run_id = '...'\"")
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise InputError(f"trace: --from-ms {from_ms:g} is not before --to-ms {to_ms:g}")
    try:
        with engine.reading():
            scope = _scope(engine, from_ms or 0.0, to_ms)
            with _writing(output) as file:
                return _write(scope, file, counters, critical_path)
    except duckdb.Error as e:
        raise InputError(f"trace: {sentence(e)}") from e


def _scope(engine: Engine, from_ms: float, to_ms: float | None) -> Scope:
    row = engine.execute("SELECT min(zero_ns) FROM run_zeros", ["run_zeros"]).fetchone()
    if row is None or row[0] is None:
        raise InputError(f"trace: {engine.run_ids[0]} has no timed events to export")
    base = int(row[0])
    end = None if to_ms is None else base + round(to_ms * 1e6)
    scope = Scope(engine, base, base + round(from_ms * 1e6), end, Tracks(engine))
    scope.tracks.lay_out(engine, scope.overlapping())
    return scope


@contextmanager
def _writing(output: Path) -> Iterator[TextIO]:
    """Open the output; it appears under its name when it is complete."""
    with atomic_output(output) as part, part.open("wb") as raw:
        if output.name.lower().endswith(".gz"):
            # mtime=0: the same trace gives the same bytes.
            with (
                gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as compressed,
                io.TextIOWrapper(compressed, "utf-8") as f,
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
    """Return the start of the JSON object, with the fields that `analyze` reads."""
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
