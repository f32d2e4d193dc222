"""`collect ab`: two sides of a comparison, recorded in turn so that what changes on the machine affects both alike."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from collect.option_checks import flag, make_options
from collect.signals import Signals
from collect.sweep.plan import Plan
from collect.sweep.state import load_state
from collect.sweep.sweep import sweep
from schemas.errors import InputError

SIDES = ("a", "b")


@dataclass(frozen=True)
class Side:
    """What one side runs: its command, else that of both, with its own folder and variables."""

    name: str
    command: str | None = None
    directory: str | None = None
    variables: Sequence[str] = ()

    def values(self, program: Sequence[str]) -> dict[str, Any]:
        """Return the options that are the side's own. Raises InputError."""
        try:
            arguments = list(program) if self.command is None else shlex.split(self.command)
        except ValueError as e:
            raise InputError(f"--{self.name}: {self.command!r} is not a command: {e}") from e
        if not arguments:
            raise InputError(f"--{self.name}: expected a command, or one of both sides after --")
        for variable in self.variables:
            if not variable.partition("=")[1] or variable.startswith("="):
                raise InputError(f"--{self.name}-env: invalid value {variable!r}; expected NAME=VALUE")
        values: dict[str, Any] = {"program": ["env", *self.variables, *arguments] if self.variables else arguments}
        if self.directory is not None:
            if not Path(self.directory).is_dir():
                raise InputError(f"--{self.name}-dir: {self.directory} is not a folder")
            values["directory"] = self.directory
        return values


def plan_sides(options: Mapping[str, Any], sides: Sequence[Side], repetitions: int, seed: int) -> Plan:
    """Return the plan of all repetitions of both sides, in an order that depends on `seed` only. Raises InputError."""
    common = {key: value for key, value in options.items() if key not in ("program", "output")}
    values = {side.name: side.values(options["program"] or ()) for side in sides}
    for side_values in values.values():
        make_options({**common, **side_values}, flag)
    cells = [{"side": name, "repetition": number, **values[name]} for name, number in _order(repetitions, seed)]
    return Plan(Path("collect ab"), common, cells)


def _order(repetitions: int, seed: int) -> Iterator[tuple[str, int]]:
    """Yield side and repetition: two repetitions are a b b a or b a a b, by chance, so that neither side is first more.

    Drift that is linear in time then affects both sides alike.
    """
    chance = random.Random(seed)
    order = list(SIDES)
    for number in range(1, repetitions + 1):
        order = order[::-1] if number % 2 == 0 else chance.sample(SIDES, 2)
        for name in order:
            yield name, number


def record_sides(plan: Plan, output: Path, console: Console, signals: Signals) -> int:
    """Record every repetition that is not done yet; return the exit code as `sweep` does.

    Repetitions that failed are recorded once more, unless a side has none that succeeded. Raises as `sweep`.
    """
    code = sweep(plan, output, True, console, signals)
    cells = load_state(output, plan).cells
    if code == 1 and {c.values["side"] for c in cells if c.status == "done"} == set(SIDES):
        console.print("recording again what failed", highlight=False)
        code = sweep(plan, output, True, console, signals)
    return code
