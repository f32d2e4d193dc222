"""The command `analyze tables`."""

from __future__ import annotations

from typing import Annotated

import typer

import analyze
from analyze.cli import completion, listings, terminal
from analyze.cli.shared_options import Format, Output, Wide, form_of


def tables(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A table, an SQL module, or a view or macro of one. Without a name, all tables.",
            autocompletion=completion.tables,
        ),
    ] = None,
    modules: Annotated[
        bool, typer.Option("--modules", help="List the SQL modules of queries and what each defines.")
    ] = False,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Document the tables and the SQL modules of queries."""
    form = form_of(format, output)
    shown = analyze.tables(name, modules)
    if modules:
        listings.show(lambda: terminal.list_modules(shown), lambda: listings.modules(shown), form, output, wide)
    else:
        listings.show(lambda: terminal.describe(shown), lambda: listings.tables(shown), form, output, wide)
