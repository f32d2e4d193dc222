"""Shows the progress of a pass on stderr: a bar on a terminal, one line per pass elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class PassProgress:
    """Shows one pass. The worker appends a byte to the file `progress` for each step."""

    def __init__(self, console: Console, title: str, steps: int | None, scratch: Path) -> None:
        """`steps` is the number of steps, None if unknown: then there is no bar, only the title."""
        self._counter = scratch / "progress"
        self._title = title
        self._console = console
        self._bar: Progress | None = None
        if console.is_terminal and steps is not None:
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
            self._console.print(f"{self._title} ...", markup=False, highlight=False, soft_wrap=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.update()
        if self._bar:
            self._bar.stop()

    def update(self) -> None:
        """Show new steps."""
        if self._bar and self._counter.exists():
            self._bar.update(self._task, completed=self._counter.stat().st_size)
