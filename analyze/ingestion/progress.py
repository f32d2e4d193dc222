"""Progress of long work, and progress bars on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias


class Progress:
    """Receives the progress of an ingest, and ignores it."""

    def search(self, folder: str) -> None:
        """Look for recordings in a folder with many files."""

    def start(self, total_bytes: int) -> None:
        """Begin work on this many bytes."""

    def advance(self, done_bytes: int, name: str) -> None:
        """Add bytes of a file that were read."""


Counted: TypeAlias = Callable[[int, int, str], object]
"""Called with the count done, the total, and what comes next."""


class Bar(Progress):
    """Shows a rich progress bar once work begins."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def search(self, folder: str) -> None:
        """Say so at once: it may take minutes."""
        print(f"looking for recordings in {folder}, which has many files; Ctrl-C stops it", file=sys.stderr)

    def start(self, total_bytes: int) -> None:
        """Show the bar, if stderr is a terminal."""
        if not sys.stderr.isatty():
            return
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("ingest"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[name]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=total_bytes, name="")

    def advance(self, done_bytes: int, name: str) -> None:
        """Move the bar."""
        if self._bar:
            self._bar.update(self._task, advance=done_bytes, name=name)

    def stop(self) -> None:
        """Remove the bar."""
        if self._bar:
            self._bar.stop()


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Show a bar and remove it at the end, also after an error."""
    bar = Bar()
    try:
        yield bar
    finally:
        bar.stop()


@contextmanager
def counted_bar(what: str) -> Iterator[Counted]:
    """Show a bar of a count if stderr is a terminal; remove it at the end."""
    if not sys.stderr.isatty():
        yield lambda done, total, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[name]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, name="")
        yield lambda done, total, name: bar.update(task, completed=done, total=total, name=name)
