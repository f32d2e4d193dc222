"""Figures of sums: per training step and per GPU or rank, if the recording says how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from analyze.errors import InputError
from analyze.plots.figure import Rows

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_WORDS = {"step": "step", "gpu": "GPU", "rank": "rank"}
_COUNTS = """
SELECT
    (SELECT count(*) FROM runs), (SELECT max(steps) FROM step_counts), (SELECT count(*) FROM gpu_tracks),
    (SELECT count(DISTINCT rank) FROM run_groups)
"""


class Counts(NamedTuple):
    """What the sums of a recording are over; None: several runs, or not known."""

    step: int | None = None
    gpu: int | None = None
    rank: int | None = None

    @classmethod
    def of(cls, engine: Engine) -> Counts:
        """Return the counts of the one run of an engine; of several runs, none."""
        [(runs, *counts)] = engine.rows(_COUNTS, ["gpu_timeline", "steps"])
        return cls(*(n or None for n in counts)) if runs == 1 else cls()


def parts(text: str, where: str) -> tuple[str, ...]:
    """Read what follows `per=`. Raises InputError."""
    found = tuple(text.split(","))
    if not set(found) <= _WORDS.keys():
        raise InputError(f"{where}: per={text}: expected some of {', '.join(_WORDS)}")
    return found


def divided(rows: Rows, measures: Sequence[str], parts: Sequence[str], counts: Counts) -> Rows:
    """Return rows whose sums of time (`measures`) are means over `parts`, with words and a sentence that say so.

    A row of one step is not divided by the steps.
    """
    sums = [rows.at(m) for m in measures if rows.unit(m) == "ns"]
    if not sums:
        return rows
    of_steps = rows.has("step") and any(v is not None for v in rows.values("step"))
    wanted = [p for p in parts if not (p == "step" and of_steps)]
    known = {p: n for p in wanted if (n := getattr(counts, p))}
    over = [f"{_WORDS[p]}s" for p in wanted if p not in known and p != "step"]
    divisor = 1
    for n in known.values():
        divisor *= n
    found = [tuple(v / divisor if i in sums and v is not None else v for i, v in enumerate(row)) for row in rows.rows]
    several = {p: n for p, n in known.items() if p == "step" or n > 1}
    words = " and ".join(_WORDS[p] for p in several)
    said = []
    if divisor > 1:
        counted = " and ".join(f"{n} {_WORDS[p]}{'s' if n > 1 else ''}" for p, n in several.items())
        said.append(f"Means over {counted}; tables have the sums.")
    if "step" in wanted and "step" not in known:
        said.append(" ".join(["Sums over the recording", *([f"and its {' and '.join(over)}"] if over else [])]) + ".")
    return rows._replace(rows=found, per=f" per {words}" if words else "", said=tuple(said))
