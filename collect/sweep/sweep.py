"""Runs the cells of a plan and keeps sweep.json, so that a sweep can be stopped and started again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from collect.failure import os_failure
from collect.options import RunOptions
from collect.run import INTERRUPTED, run
from collect.run_folder import make_private, utc_now
from collect.signals import Signals
from collect.sweep.plan import Plan, select_cells
from collect.sweep.state import SweepState, load_state, save_state
from schemas.errors import ReportedError
from schemas.sweep import Cell, Status


class Outcome(NamedTuple):
    """How the run of a cell went."""

    status: Status
    run: str | None = None
    """Name of the run folder."""
    reason: str | None = None
    seconds: float | None = None


Work = tuple[Cell, RunOptions]
OnStart = Callable[[Sequence[Cell]], None]
"""Called with cells whose runs start."""
Launcher = Callable[[Sequence[Work], Path, OnStart, Signals], Iterator[tuple[Cell, Outcome]]]
"""Runs cells into a folder and yields their outcomes as they end."""


def sweep(
    plan: Plan,
    output: Path | None,
    retry_failed: bool,
    console: Console,
    signals: Signals,
    only: str | None = None,
    launcher: Launcher | None = None,
) -> int:
    """Run every cell that is not done yet; return the exit code.

    Failed cells run again only with `retry_failed`. `only` (key=value,...) selects cells. `launcher` runs them
    elsewhere (collect/sweep/tasks.py) instead of one after the other in this process. `console` writes to stderr.
    Raises InputError for a plan that cannot be resumed, and MachineError when files cannot be written.
    """
    folder = plan.folder(output)
    try:
        make_private(folder, exist_ok=True)
    except OSError as e:
        raise os_failure(e, "--output: cannot write to ") from e
    state = load_state(folder, plan)
    finished = {"done"} if retry_failed else {"done", "failed"}
    selected = state.cells if only is None else [state.cells[i] for i in select_cells(only, plan.cells)]
    to_run = [c for c in selected if c.status not in finished]
    save_state(folder, state)
    with _progress_bar(console) as bar:
        task = bar.add_task("", total=len(selected), completed=len(selected) - len(to_run), left="")

        def on_start(cells: Sequence[Cell]) -> None:
            for cell in cells:
                cell.status, cell.start, cell.run, cell.reason = "running", utc_now(), None, None
                left = sum(c.status in ("pending", "running") for c in to_run)
                bar.update(task, description=cell.label, left=_time_left(selected, left))
                if not console.is_terminal:
                    position = state.cells.index(cell) + 1
                    console.print(f"[{position}/{len(state.cells)}] {cell.label}", markup=False, highlight=False)
            save_state(folder, state)

        work = [(cell, plan.run_options(cell.values, folder.resolve() if launcher else folder)) for cell in to_run]
        for cell, outcome in (launcher or run_here)(work, folder, on_start, signals):
            cell.status, cell.run, cell.reason, cell.seconds = outcome
            if cell.status == "failed":
                message = f"{cell.label}: failed: {cell.reason}"
                bar.console.print(message, markup=False, highlight=False, soft_wrap=True)
            save_state(folder, state)
            bar.advance(task)
    _print_summary(state, console)
    if signals.count:
        return INTERRUPTED
    return 0 if all(c.status == "done" for c in selected) else 1


def run_here(work: Sequence[Work], folder: Path, on_start: OnStart, signals: Signals) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells one after the other in this process, until interrupted."""
    for cell, options in work:
        on_start([cell])
        yield cell, run_cell(options, cell_command(cell), signals)
        if signals.count:
            return


def cell_command(cell: Cell) -> list[str]:
    """The command line that run.json shows for a cell."""
    return ["collect", *sys.argv[1:], "#", *(f"{k}={v}" for k, v in cell.values.items())]


def run_cell(options: RunOptions, command: list[str], signals: Signals) -> Outcome:
    """Run a cell in this process."""
    start = time.monotonic()
    try:
        result = run(options, command, Console(stderr=True, quiet=True), signals)
        name = result.folder.name if result.folder else None
        status: Status = "interrupted" if signals.count else "failed" if result.exit_code else "done"
        return Outcome(status, name, result.reason, round(time.monotonic() - start, 3))
    except ReportedError as e:
        return Outcome("failed", None, str(e), round(time.monotonic() - start, 3))


def _progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _time_left(cells: Sequence[Cell], count: int) -> str:
    """Estimate of how long `count` cells will take, from those that have ended."""
    durations = [c.seconds for c in cells if c.seconds is not None and c.status in ("done", "failed")]
    if not durations:
        return ""
    seconds = round(sum(durations) / len(durations) * count)
    return f"about {seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02} left"


def _print_summary(state: SweepState, console: Console) -> None:
    table = Table("cell", "status", "seconds", "run or reason")
    for cell in state.cells:
        seconds = f"{cell.seconds:.1f}" if cell.seconds is not None else ""
        result = cell.run if cell.status == "done" else cell.reason
        table.add_row(*map(Text, (cell.label, cell.status, seconds, result or "")))
    console.print(table)
    done, failed = (sum(c.status == status for c in state.cells) for status in ("done", "failed"))
    rest = len(state.cells) - done - failed
    console.print(f"{done} done, {failed} failed" + (f", {rest} not run" if rest else ""), highlight=False)
