"""The commands `analyze baseline set`, `list`, `show` and `rm`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.cli import terminal
from analyze.cli.shared_options import Format, Output, Wide, form_of, print_answer

baseline = typer.Typer(
    name="baseline",
    help="Store runs under a name, as a baseline for `analyze compare`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(help="Name of the baseline.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="Folder or URL of the baselines. Default: $TRACEQUARRY_BASELINES, else .tracequarry/baselines."
    ),
]


@baseline.command("set")
def set_(
    name: Name,
    runs: Annotated[list[Path], typer.Argument(help="Run folders, folders of these, or raw trace files.")],
    folder: Folder = None,
) -> None:
    """Store these runs as the baseline; replaces an older one."""
    result = analyze.set_baseline(name, *runs, folder=folder)
    terminal.warn(result.warnings)
    typer.echo(f"baseline {name}: {len(result.ingested)} run(s)")


@baseline.command("list")
def list_(folder: Folder = None) -> None:
    """List the names of the baselines."""
    for name in analyze.baselines(folder):
        typer.echo(name)


@baseline.command()
def show(name: Name, folder: Folder = None, format: Format = None, output: Output = None, wide: Wide = False) -> None:
    """Show the main figures of the runs of a baseline."""
    form = form_of(format, output)
    with analyze.open_baseline(name, folder) as traces:
        print_answer(traces.query("summary"), form, output, wide)


@baseline.command()
def rm(name: Name, folder: Folder = None) -> None:
    """Remove a baseline."""
    analyze.remove_baseline(name, folder)
    typer.echo(f"baseline {name}: removed")
