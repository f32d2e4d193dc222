"""Plans of sweeps: which options, in which combinations.

A plan::

    repeat = 3             # how often each cell runs; 1 if it is missing

    [options]              # options of every run, named as in `collect run` with _ for -
    steps = 5

    [grid]                 # every combination is a cell; the last line varies fastest
    model = ["alexnet", "resnet18"]
    batch_size = [16, 64]

    [[exclude]]            # cells that match all lines of an [[exclude]] are left out
    model = "alexnet"
    batch_size = 64

Several [[grid]] tables run one after the other; a cell that occurs in two of them runs once.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collect.option_checks import make_options, output_folder
from collect.options import RunOptions
from schemas.errors import InputError
from schemas.files import read_bounded
from schemas.manifest import is_run_id

NOT_IN_A_PLAN = ("output", "echo", "job")
"""Options that are given on the command line of the sweep."""
NOT_OPTIONS = ("repetition", "side")
"""Values of a cell that its run has no option for."""
MAX_REPEAT = 1000


@dataclass(frozen=True)
class Plan:
    """A plan whose cells have been checked: the options of every run, and the values of each cell."""

    path: Path
    options: dict[str, Any]
    cells: list[dict[str, Any]]

    def run_options(self, values: dict[str, Any], output: Path) -> RunOptions:
        """Options of a cell with these values. Raises InputError, naming the file and the key."""

        def label(key: str) -> str:
            return f"{self.path}: {'grid' if key in values else 'options'}.{key}"

        given = {key: value for key, value in values.items() if key not in NOT_OPTIONS}
        return make_options({**self.options, **given, "output": str(output), "echo": False}, label)

    def folder(self, output: Path | None) -> Path:
        """Folder of the sweep. Raises InputError if the plan's name cannot name a folder, and for a URL."""
        if output is None and not is_run_id(self.path.stem):
            raise InputError(f"{self.path}: {self.path.stem!r} cannot name a folder; choose one with --output")
        return output_folder(output) if output else Path("runs") / self.path.stem


def read_plan(path: Path) -> Plan:
    """Read and check a plan. Raises InputError, naming the file and the key."""
    try:
        raw = tomllib.loads(read_bounded(path).decode())
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: not TOML: {e}") from e
    for key in raw:
        if key not in ("repeat", "options", "grid", "exclude"):
            raise InputError(f"{path}: {key}: unknown key; expected repeat, options, grid or exclude")
    repeat = raw.get("repeat", 1)
    if type(repeat) is not int or not 1 <= repeat <= MAX_REPEAT:
        raise InputError(f"{path}: repeat: invalid value {repeat!r}; expected a whole number from 1 to {MAX_REPEAT}")
    options = raw.get("options", {})
    if not isinstance(options, dict):
        raise InputError(f"{path}: options: expected an [options] table")
    grids, excludes = _grids(path, raw), raw.get("exclude", [])
    if not isinstance(excludes, list) or not all(isinstance(e, dict) for e in excludes):
        raise InputError(f"{path}: exclude: expected [[exclude]] tables")
    grid_keys = dict.fromkeys(key for grid in grids for key in grid)
    for key in grid_keys:
        if key in options:
            raise InputError(f"{path}: grid.{key}: also set in options; set it in one place")
    for exclude in excludes:
        for key in exclude:
            if key not in grid_keys:
                raise InputError(f"{path}: exclude.{key}: not a key of the grid")
    for key in NOT_IN_A_PLAN:
        if key in options or key in grid_keys:
            raise InputError(f"{path}: {key}: set it on the command line of the sweep, not in the plan")
    combinations = [dict(zip(g, values, strict=True)) for g in grids for values in itertools.product(*g.values())]
    plan = Plan(path, options, cells=[])
    for values in combinations:
        if values not in plan.cells and not any(e and e.items() <= values.items() for e in excludes):
            plan.run_options(values, Path())
            plan.cells.append(values)
    if not plan.cells:
        raise InputError(f"{path}: the plan has no cells: all are excluded")
    if repeat > 1:
        # All cells once, then again: what changes slowly on the machine affects all of them.
        plan.cells[:] = [{**values, "repetition": i} for i in range(1, repeat + 1) for values in plan.cells]
    return plan


def _grids(path: Path, raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The grids of a plan; a plan without any has one empty grid."""
    found = raw.get("grid", {})
    grids = found if isinstance(found, list) else [found]
    if not grids or not all(isinstance(g, dict) for g in grids):
        raise InputError(f"{path}: grid: expected a [grid] table, or several [[grid]] tables")
    for grid in grids:
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                raise InputError(f"{path}: grid.{key}: expected a list of values, not {values!r}")
    return grids


def select_cells(text: str, cells: Sequence[dict[str, Any]]) -> list[int]:
    """Indices of the cells that match all of `key=value,...` (--only); `cell=3` is the third. Raises InputError."""
    chosen = list(range(len(cells)))
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise InputError(f"--only {text}: expected key=value,...")
        if key == "cell":
            if not value.isdecimal() or not 1 <= int(value) <= len(cells):
                raise InputError(f"--only {part.strip()}: the plan has cells 1 to {len(cells)}")
            chosen = [i for i in chosen if i == int(value) - 1]
            continue
        known = {str(values[key]) for values in cells if key in values}
        if value not in known:
            hint = f"the plan has {', '.join(sorted(known))}" if known else f"no cell has the key {key}"
            raise InputError(f"--only {part.strip()}: matches no cell; {hint}")
        chosen = [i for i in chosen if str(cells[i].get(key)) == value]
    return chosen
