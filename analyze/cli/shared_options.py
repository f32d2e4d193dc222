"""The typer app, and what several commands share: options, opening recordings, printing answers."""

from __future__ import annotations

import os
import sys
from collections import Counter
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

import analyze
from analyze.cli import completion, terminal
from analyze.errors import InputError
from analyze.shell import in_shell
from schemas.urls import is_remote

if TYPE_CHECKING:
    from analyze.query.query_declaration import Query
    from analyze.query.result import Result

app = typer.Typer(
    name="analyze",
    help="Analyse profiler recordings: read them into Parquet and query them with SQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: rich would take as long to import as all the rest.
    rich_markup_mode=None,
)


class QueryCommand(TyperCommand):
    """A command that answers a query: where an option is unknown, it suggests the parameter of that name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. Raises InputError for an option that is a parameter of the query, or nearly one."""
        try:
            return super().parse_args(ctx, list(args))
        except Exception as e:  # Which class it is depends on the version of typer.
            option = getattr(e, "option_name", None)
            query = completion.named_query(args)
            if option is None or query is None:
                raise
            from difflib import get_close_matches

            options = {text.lstrip("-"): None for own in self.params for text in own.opts}
            known = {p.name: p for p in query.params} | options
            [param] = [known[name] for name in get_close_matches(option.strip("-"), known, 1)] or [None]
            if param is None:
                raise
            raise InputError(
                f"no such option: {option}; {query.name} has the parameter {param.name}: "
                f"--param {param.name}={param.default} ({param.takes})"
            ) from e


class SidesCommand(TyperCommand):
    """A command that compares: its option for the second side takes all paths up to the next option."""

    second_side = ("--with", "--compare")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, with the option in front of each of its paths."""
        spread: list[str] = []
        option = None
        for arg in args:
            if arg in self.second_side:
                option = arg
            elif option and not arg.startswith("-"):
                spread += [option, arg]
            else:
                option = None
                spread.append(arg)
        if args and args[-1] in self.second_side:
            raise InputError(f"{args[-1]}: expected the runs of B")
        return super().parse_args(ctx, spread)


def finite(value: float) -> float:
    """Return a percentage unchanged. Raises InputError for infinity and NaN."""
    if not isfinite(value):
        raise InputError(f"{value}: not a percentage")
    return value


Paths = Annotated[
    list[Path], typer.Argument(help="Stores, run folders, folders of these, or raw trace files. URLs are possible.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", help="table, csv, json, markdown, parquet or xlsx. Default: by the ending of -o, else table."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to a file: .csv, .json, .md, .parquet, .xlsx, or .txt for a table."),
]
Wide = Annotated[bool, typer.Option("--wide", "-w", help="Show all columns, also empty ones.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        help="Filter runs and ranks (SQL), for example: rank = 0. Queries about GPU work also have device and stream.",
    ),
]
Filter = Annotated[
    str | None, typer.Option("--filter", help="Filter the rows of the result (SQL), for example: total_ms > 1.")
]
_BY = (
    "Group by columns of the table `runs`, by rank or node, for example model,batch_size. Queries about communication "
    "can also group by dimension, group and scope, those about GPU work by device and stream."
)
By = Annotated[str, typer.Option("--by", help=_BY, autocompletion=completion.run_columns)]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="Set a parameter of the query: k=v.", autocompletion=completion.params),
]
Group = Annotated[
    str | None, typer.Option("--group", help="Group rows by family, module, op ... (queries with the parameter group).")
]
QueryFolders = Annotated[list[Path] | None, typer.Option("--queries", help="Also use the query files of this folder.")]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        help="Sort by these columns; -name sorts in descending order.",
        autocompletion=completion.result_columns,
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Show at most this many rows.")]
Profiler = Annotated[
    str | None,
    typer.Option(
        "--profiler",
        help="Read only recordings of this profiler: torch, gpu, nsys, nvprof, ncu, none (no profiler) or all. "
        "Default: one of torch, nsys and nvprof per workload.",
    ),
]

Block = Annotated[
    str | None,
    typer.Option(
        "--block",
        help="If a program was recorded GPU-only and in full: read gpu, full or both. "
        "Default: queries about time read gpu, others full.",
    ),
]


def open_traces(
    paths: list[Path],
    where: str | None = None,
    profiler: str | None = None,
    queries: list[Path] | None = None,
    block: str | None = None,
) -> analyze.Traces:
    """Open the recordings at some paths, and print warnings on stderr; after an ingest also what was recognised."""
    traces = _open(paths, where, profiler, queries, block)
    for text in _recognised(traces):
        typer.echo(f"read as: {text}", err=True)
    return traces


def open_both(
    a: list[Path], b: list[Path], where: str | None = None, profiler: str | None = None, block: str | None = None
) -> tuple[analyze.Traces, analyze.Traces]:
    """Open two sides like `open_traces`, and print in one line what was recognised."""
    sides = {"A": _open(a, where, profiler, block=block), "B": _open(b, where, profiler, block=block)}
    if texts := [f"{side} {', '.join(_recognised(traces))}" for side, traces in sides.items() if traces.read_as]:
        typer.echo(f"read as: {'; '.join(texts)}", err=True)
    return sides["A"], sides["B"]


def _recognised(traces: analyze.Traces) -> list[str]:
    """Return what the paths were recognised as; paths that are alike once, with their number."""
    paths = Counter(traces.read_as)
    return [text if n == 1 else f"{n} paths, each {text}" for text, n in paths.items()]


def _open(
    paths: list[Path],
    where: str | None,
    profiler: str | None,
    queries: list[Path] | None = None,
    block: str | None = None,
) -> analyze.Traces:
    from analyze.ingestion.progress import progress_bar
    from analyze.query import duckdb_memory
    from analyze.query.process_limits import V8_RESERVES, limit_memory

    if most := duckdb_memory.memory_bytes():
        limit_memory(most + V8_RESERVES)
    with progress_bar() as progress:
        traces = analyze.open(
            *paths, queries=queries or (), where=where, profiler=profiler, block=block, progress=progress
        )
    terminal.warn(traces.warnings)
    return traces


def print_answer(answer: Result, form: str, output: Path | None, wide: bool = False) -> None:
    """Print or write an answer, and on stderr its notes."""
    from analyze.render import write

    write(answer, form, output, sys.stdout, wide)
    terminal.notes_of(answer)


def form_of(format: str | None, output: Path | None) -> str:
    """Return the format of an output: --format, else by the file's name. Raises InputError."""
    from analyze.render import output_format

    return output_format(format, output)


def find_query(command: str, name: str, folders: list[Path] | None) -> Query:
    """Return the query that a command names. Raises InputError, with a hint if a path is in place of the name."""
    from analyze.query.query_files import find

    try:
        return find(name, folders or ())
    except InputError as e:
        if not is_remote(name) and not os.path.exists(name):  # noqa: PTH110 (Path.exists raises for what is no path)
            raise
        missing = f"if that is the path, the query's name is missing: analyze {command} QUERY {in_shell(name)}"
        raise InputError(f"{e}; {missing}") from e


def parse_params(texts: list[str], option: str = "--param", group: str | None = None) -> dict[str, str]:
    """Parse parameters of the form name=value. Raises InputError that names the option.

    `group`: the parameter `group`, from an option of its own.
    """
    params = {} if group is None else {"group": group}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{option} {text}: must have the form name=value")
        params[key.strip()] = value
    return params
