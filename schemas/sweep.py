"""sweep.json, next to the run folders of a sweep or of `collect ab`: how the run of each cell went."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SWEEP_NAME = "sweep.json"

Status = Literal["pending", "running", "done", "failed", "interrupted"]


class Cell(msgspec.Struct, kw_only=True):
    """One combination of the grid, and how its run went."""

    values: dict[str, Any]
    status: Status = "pending"
    run: str | None = None
    """Name of the run folder, next to sweep.json."""
    reason: str | None = None
    start: str | None = None
    seconds: float | None = None

    @property
    def label(self) -> str:
        """The cell in words."""
        hidden = ("program", "directory") if "side" in self.values else ()
        return " ".join(f"{k}={v}" for k, v in self.values.items() if k not in hidden) or "the only cell"
