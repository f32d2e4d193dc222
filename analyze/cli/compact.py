"""The command `analyze compact`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.cli import terminal


def compact(
    store: Annotated[Path, typer.Argument(help="The store.")],
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Number of processes. Default: one per CPU.")
    ] = None,
) -> None:
    """Derive tables of older versions again and merge small files, so that a store answers faster."""
    terminal.compacted(store, analyze.compact(store, jobs))
