"""The command `analyze commit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.cli import terminal


def commit(
    store: Annotated[Path, typer.Argument(help="The store that the shards were ingested into.")],
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Commit even if shards are missing.")] = False,
) -> None:
    """Make the shards of `analyze ingest --shard` visible in the store, all at once."""
    from time import perf_counter

    began = perf_counter()
    terminal.ingested(store, analyze.commit(store, allow_missing), perf_counter() - began)
