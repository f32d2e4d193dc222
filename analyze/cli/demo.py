"""The command `analyze demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analyze.cli import terminal


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The report to write.")] = Path("demo.html"),
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = True,
) -> None:
    """Write and open the report of a sample recording: a training whose GPU waits for data."""
    import analyze
    from analyze.browser import open_page
    from analyze.demo import recording
    from analyze.ingestion.progress import counted_bar
    from analyze.report.output_files import check_page

    check_page(output)
    traces = analyze.open(recording())
    with counted_bar("report") as progress:
        traces.report(output, progress=progress)
    typer.echo(str(output))
    if open_ and not open_page(output.absolute().as_uri()):
        terminal.say(f"note: no browser was found; open {output} yourself")
    terminal.say("next: analyze report YOUR_TRACE -o report.html")
