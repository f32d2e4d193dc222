"""What the user sees on stderr while a run goes on: steps on a terminal, one line per pass elsewhere."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class PassProgress:
    """Shows one pass: counts the bytes of the worker's `progress` file, and copies new log text where asked."""

    def __init__(self, console: Console, title: str, steps: int | None, scratch: Path, log: Path, echo: bool) -> None:
        """`steps` is the number of steps to come, None when the program does not say."""
        self._counter = scratch / "progress"
        self._log = log
        self._echo = echo
        self._shown = 0
        # A character may be cut where the log ended at the last look.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._title = title
        self._console = console
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(title, total=steps)

    def __enter__(self) -> PassProgress:
        if self._bar:
            self._bar.start()
        else:
            self._console.print(f"{self._title} ...", markup=False, highlight=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.tick(last=True)
        if self._bar:
            self._bar.stop()

    def tick(self, last: bool = False) -> None:
        """Look at what has changed; with `last`, no more comes."""
        if self._bar and self._counter.exists():
            self._bar.update(self._task, completed=self._counter.stat().st_size)
        if self._echo and self._log.exists():
            with self._log.open("rb") as f:
                if f.seek(0, os.SEEK_END) < self._shown:  # the program has cut it: what is there is new
                    self._shown = 0
                    self._decoder.reset()
                f.seek(self._shown)
                new = f.read()
            self._shown += len(new)
            if text := self._decoder.decode(new, last):
                sys.stderr.write(text)
                sys.stderr.flush()
