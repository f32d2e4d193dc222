"""Queries as tools for agents: a server of the Model Context Protocol over stdin and stdout.

Tools read only the stores that the server was started with, and write nothing. An answer is JSON with a limit of rows
and characters; it says if it was cut. Bad input is an error of one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any

import duckdb

import analyze
from analyze import Traces
from analyze.errors import InputError, MachineError
from analyze.query import query_files
from analyze.query.sql_checks import sentence
from analyze.stored_tables import TABLES
from schemas.extras import missing

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from analyze.query.result import Result

MOST_ROWS = 200
MOST_CHARACTERS = 20_000
"""Of an answer's rows as JSON."""
MOST_OF_A_TEXT = 300
"""Characters of a text in a cell: names of kernels can be thousands long."""

INSTRUCTIONS = """\
Answers questions about recordings of GPU programs (torch.profiler, Nsight Systems, Nsight Compute, nvprof), memory
snapshots (`memory-oom`, `memory-live`), dumps of the flight recorder (`hang`) and logs of torch.compile (`recompiles`).
Start with `advise` (what costs time; its notes say what of the recordings is not to be trusted) or `run_query` "runs"
(what was recorded); `list_queries` has every question, `describe_query` its parameters and what its columns mean.
`run_sql` takes any SELECT over the tables of `tables`.
Times are whole nanoseconds. `where` is SQL over the columns of the table `runs` and `rank`, and selects recordings;
`profiler` is torch, gpu, nsys, nvprof, ncu, none or all, by default one timing pass of each workload.
"""

Parameters = dict[str, str | int | float]


class Tools:
    """The tools. Each method is one, and its docstring is the description for the agent. All raise InputError."""

    def __init__(self, traces: Traces):
        self._traces = traces

    def list_queries(self, group: str | None = None) -> str:
        """List the queries by name, a line each; `group`: only one group."""
        found = query_files.catalog(self._traces.query_folders).values()
        groups = sorted({q.group for q in found})
        if group is not None and group not in groups:
            raise InputError(f"there is no group {group!r}; there are {', '.join(groups)}")
        shown = sorted((q for q in found if group in (None, q.group)), key=lambda q: (q.group, q.name))
        return "\n".join(f"{q.name} ({q.group}): {q.question}" for q in shown)

    def describe_query(self, name: str, sql: bool = False) -> str:
        """Describe a query: how it is computed, its parameters, its columns and their units; `sql`: also its SQL."""
        q = query_files.find(name, self._traces.query_folders)
        lines = [f"{q.name} ({q.group}): {q.question}", *([q.description] if q.description else [])]
        lines += [f"Needs: {q.needs}"] if q.needs else []
        lines += [f"Parameter {p.name} = {p.default!r} ({p.takes}): {p.doc}" for p in q.params]
        lines += [f"Column {c.name} [{c.unit}]: {c.doc}" for c in q.columns]
        return "\n".join(lines + ([q.sql] if sql else []))

    def run_query(
        self,
        name: str,
        params: Parameters | None = None,
        by: list[str] | None = None,
        where: str | None = None,
        sort: str | None = None,
        limit: int = 50,
        select: list[str] | None = None,
        profiler: str | None = None,
        filter: str | None = None,
    ) -> str:
        """Answer a query by name.

        `params`: its parameters. `by`: columns of `runs` (or rank) to group by. `where`: SQL filter over the columns of
        `runs` and rank. `sort`: columns, `-` in front for descending. `limit`: rows, at most 200. `select`: only these
        columns. `filter`: SQL filter over the columns of the answer.
        """
        most = _rows(limit)
        traces = self._traces.where(where, profiler)
        answer = traces.query(name, by or (), params, sort, most + 1, select or (), filter)
        return _bounded(answer, most)

    def run_sql(self, statement: str, where: str | None = None, profiler: str | None = None, limit: int = 50) -> str:
        """Answer one SELECT (DuckDB) over the tables that `tables` documents; it can read nothing else.

        `where`: SQL filter over the columns of `runs` and rank. `limit`: rows, at most 200.
        """
        return _bounded(self._traces.where(where, profiler).sql(statement), _rows(limit))

    def tables(self, name: str | None = None) -> str:
        """List the tables that `run_sql` reads; with `name`, the columns of one, their types, units and meaning."""
        if name is None:
            return "\n".join(f"{t.name}: a row is {t.row}" for t in TABLES.values())
        if name not in TABLES:
            raise InputError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        columns = [f"{c.name} {c.type} [{c.unit}]: {c.doc}" for c in TABLES[name].columns]
        return "\n".join([f"{name}: a row is {TABLES[name].row}", *columns])

    def advise(
        self, where: str | None = None, min_pct: float = 1.0, profiler: str | None = None, limit: int = 50
    ) -> str:
        """Say what costs each run time, the largest saving first, with the numbers, the query that shows more, and
        what to try. `min_pct`: hide findings below this share of the run time (%)."""
        return _bounded(self._traces.where(where, profiler).advise(min_pct), _rows(limit), ["no findings"])

    def compare(
        self,
        where_a: str,
        where_b: str,
        level: str = "measure",
        time: str = "gpu",
        where: str | None = None,
        profiler: str | None = None,
        limit: int = 50,
    ) -> str:
        """Compare two selections of the runs: what changed from A to B, and whether the runs show it.

        `where_a`, `where_b`: SQL over the columns of `runs` and rank, such as run_id = '...'. `level`: measure (of
        whole runs), run, kernel, family, op, module or phase. `time`: gpu, or cpu (op and phase).
        """
        most = _rows(limit)
        result = analyze.compare(
            self._traces, self._traces, level, time, where, where_a, where_b, limit=most + 1, profiler=profiler
        )
        return _bounded(result.answer, most, [], result.notes)


def server(traces: Traces) -> MCPServer:
    """Return the server with all tools. Raises InputError if the package `mcp` is missing."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as e:
        raise missing("mcp", "mcp", e) from e
    made = MCPServer("tracequarry", instructions=INSTRUCTIONS, log_level="WARNING")
    tools = Tools(traces)
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for name in (n for n in vars(Tools) if not n.startswith("_")):
        made.add_tool(_with_tool_errors(getattr(tools, name)), annotations=reads, structured_output=False)
    return made


def _with_tool_errors(tool: Callable[..., str]) -> Callable[..., str]:
    """Wrap a tool so that its errors reach the agent as a sentence."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def wrapped(*args: Any, **options: Any) -> str:
        try:
            return tool(*args, **options)
        except (InputError, MachineError) as e:
            raise ToolError(str(e)) from e
        except duckdb.Error as e:
            raise ToolError(sentence(e)) from e
        except MemoryError as e:
            raise ToolError("out of memory") from e

    return wrapped


def _rows(limit: int) -> int:
    if not 1 <= limit <= MOST_ROWS:
        raise InputError(f"limit {limit}: must be from 1 to {MOST_ROWS}")
    return limit


def _bounded(answer: Result, most: int, nothing: Iterable[str] = (), notes: Iterable[str] = ()) -> str:
    """Return the answer as JSON, with limits of rows and characters. `nothing`: notes if there are no rows."""
    taken = answer.rows(most + 1)
    rows: list[list[Any]] = []
    characters = 0
    for row in taken[:most]:
        shown = [_plain(value) for value in row]
        characters += len(json.dumps(shown))
        if characters > MOST_CHARACTERS:
            break
        rows.append(shown)
    said = [*answer.notes, *notes, *([] if taken else nothing)]
    if len(rows) < len(taken):
        said.append(f"cut: there are more than these {len(rows)} rows; narrow with where, filter or select, or sum up")
    if any(isinstance(v, str) and len(v) > MOST_OF_A_TEXT for row in taken[: len(rows)] for v in row):
        said.append(f"cut: texts end in … after {MOST_OF_A_TEXT} characters")
    units = {c.name: c.unit for c in answer.columns}
    return json.dumps({"columns": units, "rows": rows, "notes": said}, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a cell as a JSON value."""
    if isinstance(value, str):
        return value if len(value) <= MOST_OF_A_TEXT else value[:MOST_OF_A_TEXT] + "…"
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, int):
        return value
    return _plain(str(value))
