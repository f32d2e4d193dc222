"""What commands have in common: the app that they belong to, options, and how paths become answers on a terminal."""

from __future__ import annotations

import os
import sys
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import analyze
from analyze.commands import completion, terminal
from analyze.errors import InputError
from analyze.shell import in_shell
from schemas.urls import is_remote

if TYPE_CHECKING:
    from analyze.query.answer import Answer
    from analyze.query.query_files import Query

app = typer.Typer(
    name="analyze",
    help="Ask questions of raw profiler files: ingest into Parquet, query in SQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: rich would take as long to import as all the rest.
    rich_markup_mode=None,
)


def finite(value: float) -> float:
    """A share in % as it was given. Raises InputError for infinity and what is no number."""
    if not isfinite(value):
        raise InputError(f"{value} is no share in %: it must be a number")
    return value


Paths = Annotated[
    list[Path], typer.Argument(help="Stores, run folders, folders of them, or raw trace files; URLs, too.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", help="table, csv, json, markdown, parquet or xlsx; by default what -o says, else table."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to a file: .csv, .json, .md, .parquet, .xlsx, or .txt for a table."),
]
Wide = Annotated[bool, typer.Option("--wide", "-w", help="Tables with all columns, empty ones too.")]
Where = Annotated[str | None, typer.Option("--where", help="SQL over the columns of runs and rank: what to look at.")]
BY = "Columns of runs (or rank, node) to group by: model,batch_size; for communication dimension, group or scope, too."
Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="A parameter of the query: k=v.", autocompletion=completion.params),
]
QueryFolders = Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")]
Sort = Annotated[str | None, typer.Option("--sort", help="Columns to sort by; -name is descending.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")]
Profiler = Annotated[
    str | None,
    typer.Option(
        "--profiler",
        help="Which passes: torch, nsys, nvprof, ncu, none or all; by default one timing pass of each workload.",
    ),
]


def open_traces(paths: list[Path], queries: list[Path] | None = None) -> analyze.Traces:
    """What paths hold; on stderr what was left out of it, and, the first time, what it was read as."""
    from analyze.ingestion.progress import progress_bar
    from analyze.query import spill
    from analyze.query.process_limits import limit_memory

    if most := spill.memory_bytes():
        limit_memory(most)
    with progress_bar() as progress:
        traces = analyze.open(*paths, queries=queries or (), progress=progress)
    terminal.warn(traces.warnings)
    for text in traces.read_as:
        typer.echo(f"read as: {text}", err=True)
    return traces


def print_answer(answer: Answer, form: str, output: Path | None, wide: bool = False) -> None:
    """Print or write an answer, and on stderr its notes."""
    from analyze.render import write

    write(answer, form, output, sys.stdout, wide)
    terminal.notes_of(answer)


def form_of(format: str | None, output: Path | None) -> str:
    """The form of an output, by --format or else by the name of the file. Raises InputError."""
    from analyze.render import output_format

    return output_format(format, output)


def find_query(command: str, name: str, folders: list[Path] | None) -> Query:
    """The query that a command names. Raises InputError; where a path is in its place, the name was forgotten."""
    from analyze.query.query_files import find

    try:
        return find(name, folders or ())
    except InputError as e:
        if not is_remote(name) and not os.path.exists(name):  # noqa: PTH110 (Path.exists raises for what is no path)
            raise
        missing = f"if that is the path, the query's name is missing: analyze {command} QUERY {in_shell(name)}"
        raise InputError(f"{e}; {missing}") from e


def parse_params(texts: list[str], option: str = "--param") -> dict[str, str]:
    """Parameters from texts as name=value. Raises InputError, which names the option."""
    params = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{option} {text}: must have the form name=value")
        params[key.strip()] = value
    return params
