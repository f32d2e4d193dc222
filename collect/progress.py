"""Shows the progress of a pass on stderr: a bar on a terminal, one line per pass elsewhere."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class PassProgress:
    """Shows one pass. The worker appends a byte to the file `progress` for each step."""

    def __init__(self, console: Console, title: str, steps: int | None, scratch: Path, log: Path, echo: bool) -> None:
        """`steps` is the number of steps, None if unknown; `echo` copies new text of `log` to stderr."""
        self._counter = scratch / "progress"
        self._log = log
        self._echo = echo
        self._echoed = 0
        # The log may end inside a character while it is being written.
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
        self.update(last=True)
        if self._bar:
            self._bar.stop()

    def update(self, last: bool = False) -> None:
        """Show what is new; `last` says that no more will come."""
        if self._bar and self._counter.exists():
            self._bar.update(self._task, completed=self._counter.stat().st_size)
        if self._echo and self._log.exists():
            with self._log.open("rb") as f:
                if f.seek(0, os.SEEK_END) < self._echoed:  # the program has truncated the log
                    self._echoed = 0
                    self._decoder.reset()
                f.seek(self._echoed)
                new = f.read()
            self._echoed += len(new)
            if text := self._decoder.decode(new, last):
                sys.stderr.write(text)
                sys.stderr.flush()
