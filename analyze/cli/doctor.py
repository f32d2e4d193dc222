"""The command `analyze doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.checks import Format


def doctor(format: Annotated[Format, typer.Option(help="table or json.")] = "table") -> None:
    """Check what this installation can do: versions, extras, tools, browser, cache.

    Exit code: 0 if `analyze` can work, 1 if not.
    """
    from analyze.doctor import run_checks
    from schemas.checks import print_checks

    raise typer.Exit(print_checks(run_checks(), format))
