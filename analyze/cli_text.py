"""What the `analyze` command prints beside answers: notes on stderr; queries, tables and the cache on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from analyze.query.blocks import Block
    from analyze.query.query_files import Query
    from analyze.store.cache import Contents
    from schemas.tables import Table


def warn(warnings: Iterable[str]) -> None:
    """Say what was lost of raw files."""
    for warning in warnings:
        say(f"warning: {warning}")


def note(notes: Iterable[str]) -> None:
    """Say what to know about an answer; nothing where a note is empty."""
    for text in filter(None, notes):
        say(f"note: {text}")


def say(text: str) -> None:
    """A line on stderr: names in it are whatever a recording says."""
    from analyze.render import visible

    typer.echo(wrapped(visible(text), sys.stderr), err=True, nl=False)


def wrapped(text: str, file: TextIO | None) -> str:
    """A text, wrapped to the terminal that it goes to, if it goes to one."""
    from analyze.render import hanging, terminal_width

    return hanging(text, terminal_width(file)) if file is not None and file.isatty() else f"{text}\n"


def list_queries(catalog: Mapping[str, Query]) -> None:
    """A line for each query: name, question, parameters."""
    from rich.text import Text

    table = _grid("query", "question", "parameters")
    group = None
    for query in sorted(catalog.values(), key=lambda q: (q.group, q.name)):
        if group not in (None, query.group):
            table.add_section()
        group = query.group
        params = ", ".join(f"{p.name}={p.default}" for p in query.params)
        table.add_row(*map(Text, (query.name, query.question, params)))
    _print_rich(table)


def explain(query: Query, params: dict[str, str]) -> None:
    """A query's documentation, and its SQL with the parameters filled in. Raises InputError for bad parameters."""
    sql, values, choices = query.bind(params)
    typer.echo(f"{query.name} ({query.group}): {query.question}")
    if query.description:
        typer.echo(f"\n{query.description}")
    if query.needs:
        typer.echo(f"\nNeeds: {query.needs}")
    if query.params:
        typer.echo("\nParameters:")
        for p in query.params:
            typer.echo(f"  {p.name} = {p.default}  ({p.takes})  {p.doc}")
    typer.echo("\nColumns:")
    for c in query.result_columns(choices):
        typer.echo(f"  {c.name:<24} {c.unit:<9} {c.doc}")
    for name, value in values.items():
        sql = sql.replace(f"${name}", f"{value}::BIGINT" if isinstance(value, int) else repr(value))
    typer.echo(f"\nSQL ({query.path.name}):\n{sql}")
    if query.order:
        typer.echo(f"ORDER BY run_group, {query.fill(query.order, choices)}")


def describe(shown: Mapping[str, Table | Block]) -> None:
    """What tables hold, and what blocks and their views and macros are."""
    from analyze.query.blocks import Block

    parts: list[Any] = []
    for one in shown.values():
        parts += _of_block(one) if isinstance(one, Block) else _of_table(one)
    _print_rich(*parts)


def _of_table(table: Table) -> Iterator[Any]:
    from rich.text import Text

    grid = _grid("column", "type", "unit", "what it holds")
    for c in table.columns:
        grid.add_row(*map(Text, (c.name, c.type, c.unit, c.doc)))
    yield f"[bold]{table.name}[/bold]: a row is {table.row}"
    yield grid


def _of_block(block: Block) -> Iterator[Any]:
    from rich.markup import escape

    from analyze.query.blocks import columns_of

    uses = f"\nIt uses {', '.join(block.uses)}." if block.uses else ""
    yield f"[bold]Block {block.name}[/bold]: {escape(block.description)}{uses}"
    for d in block.definitions:
        yield f"\n[bold]{d.shown}[/bold]: {'a row is ' if d.params is None else ''}{escape(d.doc)}"
        if d.columns:
            grid = _grid("column", "unit", "what it holds")
            for c in columns_of(d):
                grid.add_row(*((c.name, c.unit, escape(c.doc)) if c.unit else ("*", "", f"all columns of `{c.doc}`")))
            yield grid


def list_blocks(blocks: Mapping[str, Table | Block]) -> None:
    """The blocks, with what each defines."""
    from rich.markup import escape

    from analyze.query.blocks import Block

    grid = _grid("block", "defines", "what it is")
    for block in blocks.values():
        if isinstance(block, Block):
            defined = "\n".join(d.shown for d in block.definitions)
            grid.add_row(block.name, escape(defined), escape(block.description.partition("\n\n")[0].replace("\n", " ")))
    _print_rich(grid)


def list_cache(cache: Contents) -> None:
    """The size of the cache, and a line for each store in it."""
    from datetime import datetime

    from rich.text import Text

    from analyze.render import visible

    grid = _grid("folder", "size (MB)", "last used", "made from")
    for entry in cache.entries:
        used = datetime.fromtimestamp(entry.used).isoformat(" ", "minutes") if entry.used else ""
        grid.add_row(entry.folder.name, f"{entry.bytes / 1e6:,.1f}", used, Text(visible(entry.source)))
    size = sum(e.bytes for e in cache.entries)
    typer.echo(f"{cache.folder}: {size / 1e6:,.1f} of at most {cache.limit / 1e6:,.1f} MB")
    if cache.entries:
        _print_rich(grid)


def _grid(*headings: str) -> Any:
    from rich import box
    from rich.table import Table as Grid

    return Grid(*headings, box=box.SIMPLE_HEAD, pad_edge=False)


def _print_rich(*parts: Any) -> None:
    """Print to stdout; captured, since rich ends the program where nobody reads on."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    sys.stdout.write(capture.get())
