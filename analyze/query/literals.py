"""Values as SQL has them."""

from __future__ import annotations

from collections.abc import Iterable


def text_literal(text: str) -> str:
    """A text."""
    return "'" + text.replace("'", "''") + "'"


def of_run(run_id: str) -> str:
    """A condition that holds for a run."""
    return f"run_id = {text_literal(run_id)}"


def of_runs(run_ids: Iterable[str]) -> str:
    """A condition that holds for each of some runs, one at least."""
    return f"run_id IN ({', '.join(map(text_literal, run_ids))})"


def of_others(run_ids: Iterable[str]) -> str:
    """A condition that holds for all runs but some, or none."""
    some = list(run_ids)
    return f"NOT {of_runs(some)}" if some else "true"
