"""What work tells while it is done, and progress bars on stderr that show it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias


class Progress(Protocol):
    """What the ingest tells while it works."""

    def start(self, total_bytes: int) -> None:
        """Work of so many bytes begins."""

    def advance(self, done_bytes: int, name: str) -> None:
        """So many more bytes of a file are done."""


Counted: TypeAlias = Callable[[int, int, str], object]
"""Told how much is done, of how much, and what comes next."""


class Silent:
    """Progress to nobody."""

    def start(self, total_bytes: int) -> None:
        """Do nothing."""

    def advance(self, done_bytes: int, name: str) -> None:
        """Do nothing."""


class Bar:
    """Progress as a rich bar that appears when work begins."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def start(self, total_bytes: int) -> None:
        """Show the bar, if stderr is a terminal."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bar = Progress(
            TextColumn("ingest"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[name]}"),
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
        """Take the bar away."""
        if self._bar:
            self._bar.stop()


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A bar that is gone at the end, whatever happens."""
    bar = Bar()
    try:
        yield bar
    finally:
        bar.stop()


@contextmanager
def counted_bar(what: str) -> Iterator[Counted]:
    """A bar of what is counted, if stderr is a terminal; gone at the end."""
    if not sys.stderr.isatty():
        yield lambda done, total, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[name]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, name="")
        yield lambda done, total, name: bar.update(task, completed=done, total=total, name=name)
