"""The command `analyze cache`."""

from __future__ import annotations

from typing import Annotated

import typer

import analyze
from analyze.cli import terminal


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything that is not in use.")] = False,
    max_size: Annotated[
        str | None, typer.Option("--max-size", help="Evict least recently used entries down to this size: 500MB, 5GB.")
    ] = None,
) -> None:
    """List or clear the cached stores of raw files that were queried without `ingest`."""
    there = analyze.cache(clear, max_size)
    if clear or max_size is not None:
        typer.echo(f"{there.folder}: {len(there.removed)} removed, {sum(e.bytes for e in there.removed) / 1e6:,.1f} MB")
    else:
        terminal.list_cache(there)
