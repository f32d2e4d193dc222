"""SQL literals: texts, identifiers, paths and conditions on run_id."""

from __future__ import annotations

import re
from collections.abc import Iterable


def text_literal(text: str) -> str:
    """A text."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """The name of a column or a table, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal_path(path: str) -> str:
    """A path as a pattern that only it matches: DuckDB takes what stands in read_parquet for one."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def of_run(run_id: str) -> str:
    """A condition that holds for a run."""
    return f"run_id = {text_literal(run_id)}"


def of_runs(run_ids: Iterable[str]) -> str:
    """A condition that holds for each of some runs, one at least."""
    return f"run_id IN ({', '.join(map(text_literal, run_ids))})"
