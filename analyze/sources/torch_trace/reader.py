"""The rows of a TORCH_TRACE log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analyze.sources.interface import BATCH_ROWS, FileReport, Row, TableBatch, row_batches
from analyze.sources.plain_values import nanoseconds, text, whole
from analyze.sources.rank_hint import RankHint
from analyze.sources.torch_trace.log import Record, records
from analyze.sources.torch_trace.messages import failed_guard, frames, graph_break
from analyze.sources.torch_trace.metrics import metric_columns, outcome
from analyze.sources.torch_trace.output_code import SourceLine, graph_of, kernels_of, lines_of_nodes
from schemas.option_declaration import LARGEST_INT32

_METRICS = {
    "compilation_metrics": "forward",
    "bwd_compilation_metrics": "backward",
    "compilation_metrics_runtime": "runtime",
}
_CACHES = {
    f"{cache}_cache_{result}": (column, result)
    for cache, column in (("fx_graph", "fx_cache"), ("aotautograd", "aot_cache"))
    for result in ("hit", "miss", "bypass")
}
_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
_NEEDED = frozenset(
    {*_METRICS, *_CACHES, _STACKS, "str", "chromium_event", "dynamo_start", "dynamo_output_graph"}
    | {"inductor_output_code", "dynamo_graph_break_reason", "recompile_reasons"}
)
_MOST_STRINGS = 100_000
_MOST_OPEN = 10_000
"""Compilations whose rows may still change, and phases that have not ended; older ones are written or forgotten."""
_MOST_GRAPHS = 300
"""Graphs whose source lines are known; their backward may be compiled much later."""
_HINT_RECORDS = 50


def read_rank_hint(path: Path) -> RankHint:
    """Return the rank that torch wrote into the first records or into the name. Raises InputError."""
    for seen, record in enumerate(records(path, FileReport(), frozenset({"chromium_event", "dynamo_start"}))):
        if (rank := whole(record.data.get("rank"), LARGEST_INT32)) is not None:
            return RankHint(rank)
        if seen == _HINT_RECORDS:
            break
    named = re.search(r"_rank_(\d{1,9})_", path.name)
    return RankHint(int(named[1]) if named else None)


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield what was compiled, its phases, graph breaks, recompilations and kernels.

    A record that is damaged is lost, with a warning. Raises InputError.
    """
    log = _Log()
    for record in records(path, report, _NEEDED):
        log.take(record)
        yield from row_batches(log.rows, BATCH_ROWS)
    log.end()
    yield from row_batches(log.rows)
    if log.damaged:
        report.lost += log.damaged
        report.warnings.append(
            f"{path.name}: dropped records, in which a value is missing or cannot be: {log.damaged:,}"
        )


class _Log:
    """What the records so far say."""

    def __init__(self) -> None:
        tables = ("compilations", "compile_phases", "graph_breaks", "recompiles", "compiled_kernels", "compiled_lines")
        self.rows: dict[str, list[Row]] = {table: [] for table in tables}
        self.damaged = 0
        self._strings: dict[int, str] = {}
        self._open: dict[tuple[str | None, int], Row] = {}
        """Rows of `compilations` that may still change, by compile id and attempt."""
        self._backward: dict[str | None, Row] = {}
        """What caches said of a backward graph before its metrics come, by compile id."""
        self._nodes: dict[str | None, dict[str, SourceLine]] = {}
        """Source lines of the nodes of a graph, by compile id."""
        self._kernels: dict[str | None, dict[str, int]] = {}
        """Numbers of the kernels of the last code whose source lines are not known yet, by compile id."""
        self._phases: list[tuple[str, str | None, int]] = []
        """Phases that have begun: name, compile id, start."""
        self._now: int | None = None
        """The last time that a record states; the time of a line has no year and no zone."""
        self._numbers = dict.fromkeys(self.rows, 0)

    def _add(self, table: str, row: Row) -> int:
        self.rows[table].append(row)
        self._numbers[table] += 1
        return self._numbers[table] - 1

    def _compilation(self, record: Record, fresh: bool = False) -> Row:
        """Return the row of the compilation that a record is about."""
        compile_id, attempt = _compile_id(record.data), whole(record.data.get("attempt"), LARGEST_INT32) or 0
        before = self._open.get((compile_id, attempt))
        if fresh and attempt == 0 and before and ("outcome" in before or "function" in before):
            # After torch.compiler.reset(), ids begin at 0 again.
            for key in [key for key in self._open if key[0] == compile_id]:
                self._write(key)
        row = self._open.get((compile_id, attempt))
        if row is None:
            row = {"compilation": self._numbers["compilations"], "compile_id": compile_id, "attempt": attempt}
            row |= {"pass": "forward", "start_ns": self._now}
            self._numbers["compilations"] += 1
            self._open[compile_id, attempt] = row
            before = self._open.get((compile_id, attempt - 1))
            if before and "outcome" not in before:
                before["outcome"] = "restarted"
            if len(self._open) > _MOST_OPEN:
                self._write(next(iter(self._open)))
        return row

    def _write(self, key: tuple[str | None, int]) -> None:
        row = self._open.pop(key)
        self.rows["compilations"].append({"outcome": "unfinished", **row})

    def end(self) -> None:
        """Write what is still open."""
        for key in list(self._open):
            self._write(key)
        for name, compile_id, start_ns in self._phases:
            self._add("compile_phases", {"name": name, "compile_id": compile_id, "start_ns": start_ns})

    def take(self, record: Record) -> None:
        """Take a record."""
        data = record.data
        artifact = data.get("artifact")
        name = artifact.get("name") if isinstance(artifact, dict) else None
        if "str" in data:
            self._intern(data["str"])
        elif "chromium_event" in data:
            self._event(record)
        elif "dynamo_start" in data:
            self._start(record)
        elif kind := next((key for key in _METRICS if key in data), None):
            self._metrics(record, data[kind], _METRICS[kind])
        elif name in _CACHES:
            self._cache(record, *_CACHES[name])
        elif name == "dynamo_graph_break_reason":
            self._graph_break(record)
        elif name == "recompile_reasons":
            self._recompile(record)
        elif name == _STACKS:
            self._stacks(record)
        elif "dynamo_output_graph" in data:
            self._compilation(record)
            _remember(self._nodes, _compile_id(data), lines_of_nodes(record.payload))
        elif "inductor_output_code" in data:
            self._code(record)

    def _intern(self, pair: object) -> None:
        if isinstance(pair, list) and len(pair) == 2 and (number := whole(pair[1])) is not None:
            if (string := text(pair[0])) is not None and len(self._strings) < _MOST_STRINGS:
                self._strings[number] = string
        else:
            self.damaged += 1

    def _event(self, record: Record) -> None:
        """Take the begin or the end of a phase."""
        event = _json(record.payload)
        if not isinstance(event, dict):
            self.damaged += 1
            return
        if event.get("ph") not in ("B", "E"):
            return
        at_ns = nanoseconds(event.get("ts"), 1000)
        name, args = text(event.get("name")), event.get("args")
        if at_ns is None or name is None:
            self.damaged += 1
            return
        self._now = at_ns
        stated = text(args.get("compile_id")) if isinstance(args, dict) else None
        compile_id = stated or _compile_id(record.data)
        if event["ph"] == "B":
            self._phases.append((name, compile_id, at_ns))
            return
        for at in range(len(self._phases) - 1, max(-1, len(self._phases) - 1 - _MOST_OPEN), -1):
            if self._phases[at][0] == name:
                _, began_as, start_ns = self._phases.pop(at)
                times = {"start_ns": start_ns, "dur_ns": max(at_ns - start_ns, 0)}
                self._add("compile_phases", {"name": name, "compile_id": began_as or compile_id, **times})
                return
        self.damaged += 1

    def _start(self, record: Record) -> None:
        row = self._compilation(record, fresh=True)
        start = record.data["dynamo_start"]
        stack = start.get("stack") if isinstance(start, dict) else None
        frames = [self._frame(frame) for frame in stack if isinstance(frame, dict)] if isinstance(stack, list) else []
        if frames:
            row["file"], row["line"], row["function"] = frames[-1]
            row["stack"] = json.dumps(frames)

    def _frame(self, frame: Mapping[str, Any]) -> tuple[str | None, int | None, str | None]:
        number = whole(frame.get("filename"))
        file = None if number is None else self._strings.get(number)
        return file, whole(frame.get("line"), LARGEST_INT32), text(frame.get("name"))

    def _cache(self, record: Record, column: str, result: str) -> None:
        row = self._compilation(record)
        compile_id = row["compile_id"]
        if "outcome" in row:  # the forward's metrics came before
            row = self._backward.setdefault(compile_id, {})
        # With several graphs, the worst counts.
        if row.get(column) in (None, "hit") or result == "bypass":
            row[column] = result

    def _metrics(self, record: Record, metrics: object, phase: str) -> None:
        if not isinstance(metrics, dict):
            self.damaged += 1
            return
        found = {key: value for key, value in metric_columns(metrics).items() if value is not None}
        if phase == "forward":
            row = self._compilation(record)
            if "outcome" in row:
                # Another program without ids: AOTInductor, export.
                row = self._compilation(record, fresh=True)
            row |= {**found, "outcome": outcome(metrics)}
            return
        compile_id = text(metrics.get("compile_id")) or _compile_id(record.data)
        attempt = whole(record.data.get("attempt"), LARGEST_INT32) or 0
        row = {
            "compilation": self._numbers["compilations"],
            "compile_id": compile_id,
            "attempt": attempt,
            "pass": phase,
        }
        forward = self._open.get((compile_id, attempt))
        for name in ("function", "file", "line", "stack"):
            row[name] = forward.get(name) if forward else None
        if phase == "backward":
            row |= self._backward.pop(compile_id, {})
        self._numbers["compilations"] += 1
        self.rows["compilations"].append({**row, **found, "outcome": outcome(metrics)})

    def _graph_break(self, record: Record) -> None:
        row = self._compilation(record)
        found = graph_break(record.payload)
        keys = ("compilation", "compile_id", "attempt")
        self._add("graph_breaks", {**{key: row[key] for key in keys}, "at_ns": self._now, **found})

    def _recompile(self, record: Record) -> None:
        """Take the guards that failed: a JSON list, or the text of one."""
        row = self._compilation(record)
        found = _json(record.payload)
        for reason in found if isinstance(found, list) else [record.payload]:
            said = text(reason)
            if said is None or not said.strip():
                self.damaged += 1
                continue
            failed_id, guard = failed_guard(said)
            self._add(
                "recompiles",
                {
                    "compilation": row["compilation"],
                    "compile_id": row["compile_id"],
                    "at_ns": self._now,
                    "failed_compile_id": failed_id,
                    "guard": guard,
                },
            )

    def _code(self, record: Record) -> None:
        row = self._compilation(record)
        code = record.data["inductor_output_code"]
        graph, part = graph_of(record.payload)
        nodes = self._nodes.get(row["compile_id"], {})
        numbers: dict[str, int] = {}
        for kernel in kernels_of(record.payload):
            number = self._add(
                "compiled_kernels",
                {
                    "number": self._numbers["compiled_kernels"],
                    "compilation": row["compilation"],
                    "compile_id": row["compile_id"],
                    "attempt": row["attempt"],
                    "graph": graph,
                    "pass": part,
                    "kernel": kernel.kernel,
                    "kind": kernel.kind,
                    "nodes": ", ".join(kernel.nodes) or None,
                    "ops": ", ".join(kernel.operators) or None,
                    "output_file": text(code.get("filename")) if isinstance(code, dict) else None,
                },
            )
            if lines := [nodes[node] for node in kernel.nodes if node in nodes]:
                self._lines(number, lines)
            else:
                numbers[kernel.kernel] = number
        _remember(self._kernels, row["compile_id"], numbers)

    def _stacks(self, record: Record) -> None:
        """Take the lines of kernels by Inductor's own tracking, where Dynamo's graph did not say them."""
        traces = _json(record.payload) if record.payload else {}
        if not isinstance(traces, dict):
            self.damaged += 1
            return
        numbers = self._kernels.get(_compile_id(record.data), {})
        for name, stacks in traces.items():
            number = numbers.get(name.partition(":")[0])
            if number is None or not isinstance(stacks, list):
                continue
            innermost = [found[-1] for stack in stacks if (found := frames(text(stack) or ""))]
            self._lines(number, [SourceLine(*frame, "") for frame in innermost])

    def _lines(self, number: int, lines: list[SourceLine]) -> None:
        for line in dict.fromkeys(lines):
            self._add("compiled_lines", {"kernel_number": number, **line._asdict(), "code": line.code or None})


def _remember(known: dict[str | None, Any], compile_id: str | None, value: object) -> None:
    known.pop(compile_id, None)
    known[compile_id] = value
    if len(known) > _MOST_GRAPHS:
        known.pop(next(iter(known)))


def _compile_id(data: Mapping[str, Any]) -> str | None:
    """Return the id as torch shows it: FRAME/COMPILATION, behind !NUMBER/ inside compiled autograd."""
    names = ("compiled_autograd_id", "frame_id", "frame_compile_id")
    autograd, frame, compilation = (whole(data.get(name)) for name in names)
    parts = [] if autograd is None else [f"!{autograd}"]
    if frame is not None and compilation is not None:
        parts += [str(frame), str(compilation)]
    return "/".join(parts) or None


def _json(payload: str) -> object:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None
