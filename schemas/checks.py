"""The checks of `analyze doctor` and `collect doctor`: one row for each, with the way to fix it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Format = Literal["table", "json"]


@dataclass(kw_only=True)
class Check:
    """One check and its result."""

    name: str
    status: Literal["ok", "warn", "missing"]
    found: str
    fix: str = ""
    required: bool = False
    """Without it nothing works."""


def print_checks(checks: Sequence[Check], format: Format) -> int:
    """Print checks on stdout as a table or as JSON; return the exit code: 1 if a required one is missing."""
    if format == "json":
        sys.stdout.write(json.dumps([asdict(c) for c in checks], indent=2, ensure_ascii=False) + "\n")
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table("check", "status", "found", "fix")
        colors = {"ok": "green", "warn": "yellow", "missing": "red"}
        for c in checks:
            # As Text, so that square brackets are no markup.
            table.add_row(c.name, Text(c.status, colors[c.status]), Text(c.found), Text(c.fix))
        Console().print(table)
    return 1 if any(c.required and c.status == "missing" for c in checks) else 0
