"""What `analyze` prints besides answers: notes on stderr; queries, tables and the cache on stdout."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from analyze.ingestion.cached_stores import Contents
    from analyze.ingestion.compact import Compacted
    from analyze.ingestion.ingest import IngestResult
    from analyze.query.modules import Module
    from analyze.query.query_declaration import Query
    from analyze.query.result import Result
    from schemas.table_declaration import Table


def warn(warnings: Iterable[str]) -> None:
    """Print warnings about raw files."""
    for warning in warnings:
        say(f"warning: {warning}")


def note(notes: Iterable[str]) -> None:
    """Print notes about an answer, except empty ones."""
    for text in filter(None, notes):
        say(f"note: {text}")


def notes_of(answer: Result) -> None:
    """Print the notes of an answer. Cautions begin with their severity, so they get no prefix."""
    for caution in answer.cautions:
        say(caution)
    note(n for n in answer.notes if n not in answer.cautions)


def say(text: str) -> None:
    """Print a line on stderr. Control characters in it, as in names of a recording, are escaped."""
    from analyze.render import visible

    typer.echo(to_width(visible(text), sys.stderr), err=True, nl=False)


def ingested(store: Path, result: IngestResult, seconds: float) -> None:
    """Print what an ingest did."""
    from schemas.urls import as_given

    warn(result.warnings)
    say(f"read as: {result.read_as}")
    say(
        f"{as_given(store)}: {len(result.ingested)} run(s) ingested, {len(result.unchanged)} unchanged; "
        f"{result.rows:,} rows from {result.bytes / 1e6:,.1f} MB in {seconds:.1f} s"
    )


def compacted(store: Path, done: Compacted) -> None:
    """Print what a compaction did."""
    from schemas.urls import as_given

    say(
        f"{as_given(store)}: {len(done.derived)} run(s) derived again; "
        f"{len(done.runs)} run(s) compacted, {done.bytes / 1e6:,.1f} MB; "
        f"{done.files_before:,} files became {done.files_after:,}"
    )


def to_width(text: str, file: TextIO | None) -> str:
    """Wrap a text to the width of the terminal, if the file is one."""
    from analyze.render import hanging, terminal_width

    return hanging(text, terminal_width(file)) if file is not None and file.isatty() else f"{text}\n"


def list_queries(catalog: Mapping[str, Query]) -> None:
    """Print a line for each query: name, question, parameters."""
    rows: list[tuple[str, ...]] = []
    group = None
    for query in sorted(catalog.values(), key=lambda q: (q.group, q.name)):
        rows += [()] if group not in (None, query.group) else []
        group = query.group
        rows.append((query.name, query.question, query.defaults))
    _print_listing(("query", "question", "parameters"), rows)


def explain(query: Query, params: dict[str, str]) -> None:
    """Print a query's documentation, and its SQL with the parameters filled in. Raises InputError."""
    sql, values, choices = query.bind(params)
    _print_text(f"{query.name} ({query.group}): {query.question}")
    if query.description:
        typer.echo()
        _print_text(query.description)
    if query.needs:
        typer.echo()
        _print_text(f"Needs: {query.needs}")
    if query.gpu_columns:
        typer.echo()
        _print_text(f"--by and --where can use {' and '.join(query.gpu_columns)}.")
    typer.echo()
    if query.params:
        _print_listing(
            ("parameter", "default", "takes", "what it does"),
            [(p.name, p.default, p.takes.replace("|", " | "), p.doc) for p in query.params],
        )
        typer.echo()
    _print_listing(("column", "unit", "meaning"), [(c.name, c.unit, c.doc) for c in query.result_columns(choices)])
    for name, value in values.items():
        sql = sql.replace(f"${name}", f"{value}::BIGINT" if isinstance(value, int) else repr(value))
    typer.echo(f"\nSQL ({query.path.name}):\n{sql}")
    if query.order:
        typer.echo(f"ORDER BY run_group, {query.fill(query.order, choices)}")


def describe(shown: Mapping[str, Table | Module]) -> None:
    """Print the documentation of tables, and of modules with their views and macros."""
    from analyze.query.modules import Module

    for number, one in enumerate(shown.values()):
        if number:
            typer.echo()
        if isinstance(one, Module):
            _describe_module(one)
        else:
            _print_text(f"{one.name}: a row is {one.row}")
            _print_listing(
                ("column", "type", "unit", "meaning"), [(c.name, c.type, c.unit, c.doc) for c in one.columns]
            )


def _describe_module(module: Module) -> None:
    from analyze.query.modules import columns_of

    _print_text(f"Module {module.name}: {module.description}")
    if module.uses:
        _print_text(f"It uses {', '.join(module.uses)}.")
    for d in module.definitions:
        typer.echo()
        _print_text(f"{d.shown}: {'a row is ' if d.params is None else ''}{d.doc}")
        _print_listing(
            ("column", "unit", "meaning"),
            [(c.name, c.unit, c.doc) if c.unit else ("*", "", f"all columns of `{c.doc}`") for c in columns_of(d)],
        )


def list_modules(modules: Mapping[str, Table | Module]) -> None:
    """Print a line for each module, with what it defines."""
    from analyze.query.modules import Module

    rows = [
        (b.name, "\n".join(d.shown for d in b.definitions), b.description.partition("\n\n")[0].replace("\n", " "))
        for b in modules.values()
        if isinstance(b, Module)
    ]
    _print_listing(("module", "defines", "what it is"), rows)


def list_cache(cache: Contents) -> None:
    """Print the size of the cache, and a line for each store in it."""
    from datetime import datetime

    from analyze.render import visible

    size = sum(e.bytes for e in cache.entries)
    _print_text(f"{cache.folder}: {size / 1e6:,.1f} of at most {cache.limit / 1e6:,.1f} MB")
    rows = []
    for entry in cache.entries:
        used = datetime.fromtimestamp(entry.used).isoformat(" ", "minutes") if entry.used else ""
        rows.append((entry.folder.name, f"{entry.bytes / 1e6:,.1f}", used, visible(entry.source)))
    _print_listing(("folder", "size (MB)", "last used", "made from"), rows)


def _print_listing(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts in the width of the terminal; nothing if it has no rows."""
    from analyze.render import bold_for, listing_lines, terminal_width

    if rows:
        lines = listing_lines(headings, rows, terminal_width(sys.stdout), bold_for(sys.stdout))
        sys.stdout.writelines(f"{line}\n" for line in lines)


def _print_text(text: str) -> None:
    """Print prose, its paragraphs wrapped to the width of the terminal."""
    from analyze.render import hanging, terminal_width

    # Lines that begin with a blank, and empty lines, are not joined.
    sys.stdout.write(hanging(re.sub(r"(?<!\n)\n(?![ \n])", " ", text), terminal_width(sys.stdout)))
