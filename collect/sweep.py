"""`collect sweep PLAN.toml`: a grid of runs that can be stopped and started again.

A plan::

    [options]              # fixed options of every run, named as in `collect run` with _ for -
    steps = 5

    [grid]                 # every combination is one cell, the last line varying fastest
    model = ["alexnet", "resnet18"]
    batch_size = [16, 64]

    [[exclude]]            # cells that match all lines of one of these are left out
    model = "alexnet"
    batch_size = 64

Several grids, each a [[grid]], are done one after the other; a cell that two of them have is run once.

Beside the run folders lies sweep.json, which says of each cell how it went.
"""

from __future__ import annotations

import itertools
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from collect.checked_options import make_options, output_folder
from collect.errors import CollectError, UsageError
from collect.failure import os_sentence
from collect.options import RunOptions
from collect.process import Signals
from collect.redact import Redactor
from collect.run import INTERRUPTED, run
from collect.runfolder import make_private, utc_now
from schemas.files import read_bounded, write_synced
from schemas.manifest import is_run_id

STATE_NAME = "sweep.json"
STATE_VERSION = 1

Status = Literal["pending", "running", "done", "failed", "interrupted"]


class Outcome(NamedTuple):
    """How the run of a cell went."""

    status: Status
    run: str | None = None
    """Name of the run folder."""
    reason: str | None = None
    seconds: float | None = None


class Cell(msgspec.Struct, kw_only=True):
    """One combination of the grid, and how its run went."""

    values: dict[str, Any]
    status: Status = "pending"
    run: str | None = None
    """Name of the run folder, beside sweep.json."""
    reason: str | None = None
    start: str | None = None
    seconds: float | None = None

    @property
    def label(self) -> str:
        """The cell in words."""
        return " ".join(f"{k}={v}" for k, v in self.values.items()) or "the only cell"


Work = tuple[Cell, RunOptions]
Engine = Callable[[Sequence[Work], Path, Callable[..., None], Signals], Iterator[tuple[Cell, Outcome]]]
"""Runs cells, and tells of those that it starts; their outcomes as they come."""


class SweepState(msgspec.Struct, kw_only=True):
    """sweep.json."""

    version: int = STATE_VERSION
    plan: str
    options: dict[str, Any]
    """The fixed options; a sweep is taken up again only with the same ones."""
    cells: list[Cell]


class Plan(msgspec.Struct, kw_only=True):
    """A plan as read: fixed options and the cells of the grid, checked."""

    options: dict[str, Any]
    cells: list[dict[str, Any]]


def read_plan(path: Path) -> Plan:
    """Read and check a plan. Raises UsageError, naming the file and the key."""
    try:
        raw = tomllib.loads(read_bounded(path).decode())
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: not TOML: {e}") from e
    for key in raw:
        if key not in ("options", "grid", "exclude"):
            raise UsageError(f"{path}: {key}: there is no such table; use options, grid and exclude")
    fixed, grids = _table(path, raw, "options"), _grids(path, raw)
    excludes = raw.get("exclude", [])
    if not isinstance(excludes, list) or not all(isinstance(e, dict) for e in excludes):
        raise UsageError(f"{path}: exclude: write it as [[exclude]] tables")
    keys = dict.fromkeys(key for grid in grids for key in grid)
    for key in filter(fixed.__contains__, keys):
        raise UsageError(f"{path}: grid.{key}: also set in options; set it in one place")
    for exclude in excludes:
        for key in exclude:
            if key not in keys:
                raise UsageError(f"{path}: exclude.{key}: not a key of the grid")
    for key in ("output", "echo", "job"):
        if key in fixed or key in keys:
            raise UsageError(f"{path}: {key}: give it on the command line of the sweep, not in the plan")
    combined = [dict(zip(g, values, strict=True)) for g in grids for values in itertools.product(*g.values())]
    cells = []
    for cell in combined:
        if cell not in cells and not any(e and e.items() <= cell.items() for e in excludes):
            cells.append(cell)
    if not cells:
        raise UsageError(f"{path}: the plan has no cells: every one is excluded")
    for cell in cells:
        cell_options(path, fixed, cell, "")
    return Plan(options=fixed, cells=cells)


def _table(path: Path, raw: dict[str, Any], key: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {key}: write it as a [{key}] table")
    return value


def _grids(path: Path, raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The grids of a plan, one if it says nothing."""
    found = raw.get("grid", {})
    grids = found if isinstance(found, list) else [found]
    if not grids or not all(isinstance(g, dict) for g in grids):
        raise UsageError(f"{path}: grid: write it as a [grid] table, or as several [[grid]] tables")
    for grid in grids:
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                raise UsageError(f"{path}: grid.{key}: give a list of values, not {values!r}")
    return grids


def only_cells(text: str, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that agree with all of `key=value,...`: what of a plan one machine can run. Raises UsageError.

    `cell=3` is the third.
    """
    chosen = list(cells)
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise UsageError(f"--only {text}: must have the form key=value,...")
        if key == "cell":
            if not value.isdecimal() or not 1 <= int(value) <= len(cells):
                raise UsageError(f"--only {part.strip()}: the plan has cells 1 to {len(cells)}")
            chosen = [c for c in chosen if c is cells[int(value) - 1]]
            continue
        known = {str(c.values[key]) for c in cells if key in c.values}
        if value not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "no cell has such a key"
            raise UsageError(f"--only {part.strip()}: no cell of the plan is so; {has}")
        chosen = [c for c in chosen if str(c.values.get(key)) == value]
    return chosen


def cell_options(path: Path, fixed: dict[str, Any], cell: dict[str, Any], output: str) -> RunOptions:
    """The options of a cell of a plan. Raises UsageError, naming the file and the key."""

    def label(key: str) -> str:
        return f"{path}: {'grid' if key in cell else 'options'}.{key}"

    return make_options({**fixed, **cell, "output": output, "echo": False}, label)


def sweep(
    plan_path: Path,
    output: Path | None,
    retry_failed: bool,
    console: Console,
    signals: Signals,
    only: str | None = None,
    engine: Engine | None = None,
) -> int:
    """Run every cell that is not done yet; return the exit code.

    Failed cells are run again only with `retry_failed`. `only` (key=value,...) leaves the others for another time.
    `engine` runs them elsewhere (collect.sweep_tasks), instead of one after the other here.
    `console` writes to stderr. Raises UsageError for a bad plan and CollectError when sweep.json cannot be written.
    """
    plan = read_plan(plan_path)
    folder = sweep_folder(plan_path, output)
    try:
        make_private(folder, exist_ok=True)
    except OSError as e:
        raise UsageError(f"--output: cannot write to {os_sentence(e)}") from e
    state = _load(folder, plan_path, plan)
    skip = {"done"} if retry_failed else {"done", "failed"}
    meant = state.cells if only is None else only_cells(only, state.cells)
    todo = [c for c in meant if c.status not in skip]
    _save(folder, state)
    with _bar(console) as bar:
        task = bar.add_task("", total=len(meant), completed=len(meant) - len(todo), left="")

        def begin(*cells: Cell) -> None:
            for cell in cells:
                cell.status, cell.start, cell.run, cell.reason = "running", utc_now(), None, None
                left = sum(c.status in ("pending", "running") for c in todo)
                bar.update(task, description=cell.label, left=_time_left(meant, left))
                if not console.is_terminal:
                    position = state.cells.index(cell) + 1
                    console.print(f"[{position}/{len(state.cells)}] {cell.label}", markup=False, highlight=False)
            _save(folder, state)

        for cell, outcome in _outcomes(plan_path, plan, todo, folder, begin, signals, engine):
            cell.status, cell.run, cell.reason, cell.seconds = outcome
            if cell.status == "failed":
                said = f"{cell.label}: failed: {cell.reason}"
                bar.console.print(said, markup=False, highlight=False, soft_wrap=True)
            _save(folder, state)
            bar.advance(task)
    _summary(state, console)
    if signals.count:
        return INTERRUPTED
    return 0 if all(c.status == "done" for c in meant) else 1


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def sweep_folder(plan_path: Path, output: Path | None) -> Path:
    """The folder of a sweep. Raises UsageError for a plan whose name cannot be one, and for a URL."""
    if output is None and not is_run_id(plan_path.stem):
        raise UsageError(f"{plan_path}: {plan_path.stem!r} cannot name a folder; give one by --output")
    return output_folder(output) if output else Path("runs") / plan_path.stem


def _outcomes(
    plan_path: Path,
    plan: Plan,
    todo: list[Cell],
    folder: Path,
    begin: Callable[..., None],
    signals: Signals,
    engine: Engine | None,
) -> Iterator[tuple[Cell, Outcome]]:
    """Run the cells, here or elsewhere; `begin` is told of those that are started. Ends early when interrupted."""
    if engine is not None:
        work = [(cell, cell_options(plan_path, plan.options, cell.values, str(folder.resolve()))) for cell in todo]
        yield from engine(work, folder, begin, signals)
        return
    for cell in todo:
        begin(cell)
        options = cell_options(plan_path, plan.options, cell.values, str(folder))
        yield cell, run_cell(options, cell_command(cell), signals)
        if signals.count:
            return


def cell_command(cell: Cell) -> list[str]:
    """The command line to note down for a cell."""
    return ["collect", *sys.argv[1:], "#", *(f"{k}={v}" for k, v in cell.values.items())]


def run_cell(options: RunOptions, command: list[str], signals: Signals) -> Outcome:
    """Run a cell in this process."""
    begin = time.monotonic()
    try:
        result = run(options, command, Console(stderr=True, quiet=True), signals)
        name = result.folder.name if result.folder else None
        status: Status = "interrupted" if signals.count else "failed" if result.exit_code else "done"
        return Outcome(status, name, result.reason, round(time.monotonic() - begin, 3))
    except CollectError as e:
        return Outcome("failed", None, str(e), round(time.monotonic() - begin, 3))


def _time_left(cells: list[Cell], to_do: int) -> str:
    """About how long the cells to do will take, from those that were run."""
    took = [c.seconds for c in cells if c.seconds is not None and c.status in ("done", "failed")]
    if not took:
        return ""
    seconds = round(sum(took) / len(took) * to_do)
    return f"about {seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02} left"


def _load(folder: Path, plan_path: Path, plan: Plan) -> SweepState:
    """The state to go on from: the plan's cells, with what sweep.json says of those it knows."""
    path = folder / STATE_NAME
    cells = [Cell(values=values) for values in plan.cells]
    state = SweepState(plan=str(plan_path), options=plan.options, cells=cells)
    try:
        before = msgspec.json.decode(read_bounded(path), type=SweepState)
    except FileNotFoundError:
        return state
    except (OSError, msgspec.DecodeError) as e:
        raise UsageError(f"{path}: cannot be read as the state of a sweep: {e}") from e
    redactor = Redactor()
    if before.options != redactor.anything(plan.options):
        raise UsageError(f"{path}: started with other [options] than {plan_path} has now; give another --output")
    known: dict[bytes, list[Cell]] = {}
    for cell in before.cells:
        known.setdefault(_key(cell.values), []).append(cell)
    for number, cell in enumerate(cells):
        # Cells that differ in a secret alone are told by their order.
        if found := known.get(_key(redactor.anything(cell.values))):
            state.cells[number] = msgspec.structs.replace(found.pop(0), values=cell.values)
    return state


def _key(values: dict[str, Any]) -> bytes:
    return msgspec.json.encode(values, order="sorted")


def _save(folder: Path, state: SweepState) -> None:
    """Write sweep.json whole or not at all, without the secrets of a program's command line."""
    redactor = Redactor()
    plain = msgspec.structs.replace(
        state,
        options=redactor.anything(state.options),
        cells=[
            msgspec.structs.replace(c, values=redactor.anything(c.values), reason=redactor.anything(c.reason))
            for c in state.cells
        ],
    )
    try:
        write_synced(folder / STATE_NAME, msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n", 0o600)
    except OSError as e:
        raise CollectError(f"{STATE_NAME} cannot be written: {os_sentence(e)}") from e


def _summary(state: SweepState, console: Console) -> None:
    table = Table("cell", "status", "seconds", "run or reason")
    for cell in state.cells:
        seconds = f"{cell.seconds:.1f}" if cell.seconds is not None else ""
        said = cell.run if cell.status == "done" else cell.reason
        table.add_row(*map(Text, (cell.label, cell.status, seconds, said or "")))
    console.print(table)
    count = {s: sum(c.status == s for c in state.cells) for s in ("done", "failed")}
    rest = len(state.cells) - sum(count.values())
    tail = f", {rest} not run" if rest else ""
    console.print(f"{count['done']} done, {count['failed']} failed{tail}", highlight=False)
