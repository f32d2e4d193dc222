"""sweep.json, next to the run folders: how the run of each cell went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from collect.failure import os_sentence
from collect.redact import Redactor
from collect.sweep.plan import Plan
from schemas.errors import InputError, MachineError
from schemas.files import read_bounded, write_synced
from schemas.sweep import SWEEP_NAME, Cell

STATE_VERSION = 1


class SweepState(msgspec.Struct, kw_only=True):
    """The content of sweep.json."""

    version: int = STATE_VERSION
    plan: str
    options: dict[str, Any]
    """The plan's options; a sweep is resumed only with the same ones."""
    cells: list[Cell]


def load_state(folder: Path, plan: Plan) -> SweepState:
    """Return the cells of the plan, with what sweep.json says of those it knows. Raises InputError."""
    path = folder / SWEEP_NAME
    cells = [Cell(values=values) for values in plan.cells]
    state = SweepState(plan=str(plan.path), options=plan.options, cells=cells)
    try:
        saved = msgspec.json.decode(read_bounded(path), type=SweepState)
    except FileNotFoundError:
        return state
    except (OSError, msgspec.DecodeError) as e:
        raise InputError(f"{path}: not the state of a sweep: {e}") from e
    redactor = Redactor()
    if saved.options != redactor.anything(plan.options):
        raise InputError(f"{path}: started with other [options] than {plan.path} has now; choose another --output")
    known: dict[bytes, list[Cell]] = {}
    for cell in saved.cells:
        known.setdefault(_key(cell.values), []).append(cell)
    for index, cell in enumerate(cells):
        # Cells that differ only in a secret are matched by their order.
        if matches := known.get(_key(redactor.anything(cell.values))):
            cells[index] = msgspec.structs.replace(matches.pop(0), values=cell.values)
    return state


def _key(values: dict[str, Any]) -> bytes:
    return msgspec.json.encode(values, order="sorted")


def save_state(folder: Path, state: SweepState) -> None:
    """Write sweep.json atomically, with the secrets of command lines replaced. Raises MachineError."""
    redactor = Redactor()
    redacted = msgspec.structs.replace(
        state,
        options=redactor.anything(state.options),
        cells=[
            msgspec.structs.replace(c, values=redactor.anything(c.values), reason=redactor.anything(c.reason))
            for c in state.cells
        ],
    )
    try:
        write_synced(folder / SWEEP_NAME, msgspec.json.format(msgspec.json.encode(redacted), indent=2) + b"\n", 0o600)
    except OSError as e:
        raise MachineError(f"{SWEEP_NAME} cannot be written: {os_sentence(e)}") from e
