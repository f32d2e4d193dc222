"""The findings that `advise` looks for: how their files in `analyze/advice/` declare them.

A finding is a query file without @column and @order lines. Its first line is the problem.
Lines say what its SELECT, a row for each run with the problem, does not:

    Saving: how it is computed.
    Overlaps: findings whose time its saving can include; else each ns belongs to one cause (SQL module `findings`).
    Of: idle time, to which the profiler adds, so that the saving is at most that without the profiler, if known; or
        late ranks: its interval is one in which others wait for this rank.
    Sure: measured (the default), estimated, or host time: an artifact of the recording may be most of it where the
        profiler slows the CPU down and nothing says by how much (view `slowed_runs`).
    See: the query that shows more.
    Try: what to do.
    Try for decode: what to do in runs of this kind of workload (query `workload`), or whose row has this word in the
        column `situation`, which the SELECT then has. The first that holds counts, situations before kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from analyze.errors import InputError
from analyze.query.query_declaration import Query, ResultColumn
from analyze.query.query_files import parse

FOLDER = Path(__file__).parent / "advice"
_MS = re.MULTILINE | re.DOTALL

_COLUMNS = (
    ResultColumn("run_id", "id", "The run."),
    ResultColumn("saving_ns", "ns", "Upper bound of the time saved, per GPU."),
    ResultColumn("evidence", "text", "Numbers that support the finding."),
    ResultColumn("rank", "index", "Rank of the longest interval."),
    ResultColumn("device", "index", "GPU of that interval."),
    ResultColumn("start_ns", "ns", "Its start."),
    ResultColumn("end_ns", "ns", "Its end."),
    ResultColumn(
        "source", "text", "Source line with most of the time, or launch and kernel of counters; NULL if not known."
    ),
)
"""Columns of the SELECT of every finding; a row is a run."""

_SITUATION = ResultColumn("situation", "text", "Which of several remedies applies; NULL for none of them.")

KINDS = (
    "training", "inference", "prefill", "decode", "compiled", "CUDA graphs", "pipeline", "experts", "CPU only",
    "counters only",
)  # fmt: skip
"""Kinds of workload (SQL module `workload_kinds`)."""


class Finding(NamedTuple):
    """A finding as its file declares it."""

    name: str
    title: str
    saving: str
    """How the saving is computed."""
    see: str
    attempt: str
    overlaps: frozenset[str]
    """Findings whose savings can hold the same time."""
    of: str
    """idle time, late ranks, or empty."""
    query: Query
    sure: str
    """measured, estimated or host time."""
    attempts: Mapping[str, str]
    """What to try instead, by situation or kind of workload."""

    def remedy(self, situation: str | None, kinds: Sequence[str]) -> str:
        """Return what to try."""
        wanted = (situation, *(kind for kind in self.attempts if kind in kinds))
        return next((self.attempts[name] for name in wanted if name and name in self.attempts), self.attempt)


def findings() -> list[Finding]:
    """All findings by name. Raises InputError for a file that is not of the form."""
    return [_finding(path) for path in sorted(FOLDER.glob("*.sql"))]


_LINE = r"(?:Saving|Overlaps|Of|Sure|See|Try(?: for [\w ]+)?): "


def _finding(path: Path) -> Finding:
    query = parse(path, _COLUMNS, "run_id")
    found = re.findall(rf"^({_LINE})(.*?)(?=^{_LINE}|\Z)", query.description, _MS)
    parts = {key.removesuffix(": "): " ".join(text.split()) for key, text in found}
    attempts = {key.removeprefix("Try for "): parts.pop(key) for key in list(parts) if key.startswith("Try for ")}
    parts = {"Overlaps": "", "Of": "", "Sure": "measured"} | parts
    known = parts["Of"] in ("", "idle time", "late ranks") and parts["Sure"] in ("measured", "estimated", "host time")
    if set(parts) != {"Saving", "Overlaps", "Of", "Sure", "See", "Try"} or not known:
        raise InputError(f"{path}: a finding needs the lines Saving:, See: and Try:")
    if not set(attempts) <= set(KINDS):
        query = replace(query, columns=(*query.columns, _SITUATION))
    overlaps = frozenset(name.strip() for name in parts["Overlaps"].split(",") if name.strip())
    return Finding(
        path.stem, query.question, parts["Saving"], parts["See"], parts["Try"], overlaps, parts["Of"], query,
        parts["Sure"], attempts,
    )  # fmt: skip
