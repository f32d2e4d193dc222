"""Findings: what costs a run time, ranked by the time that mending it could save, each with its numbers.

A finding is a file in `analyze/advice/`, of the form of a query file: its first line is what is wrong, the lines
`Saving:`, `See:` and `Try:` say how the saving is computed, which query shows more, and what to do; its SELECT returns
a row for each run that the finding is true of, with the saving and the evidence. Time has one owner, its cause (the
block `time_owners`); a finding whose saving can be time of others names them in a line `Overlaps:`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from analyze.errors import InputError
from analyze.query.query_files import Query, ResultColumn, parse
from analyze.shell import in_shell

if TYPE_CHECKING:
    from analyze.query.answer import Answer
    from analyze.query.engine import Engine

FOLDER = Path(__file__).parent / "advice"
_MS = re.MULTILINE | re.DOTALL

COLUMNS = (
    ResultColumn("run_id", "id", "the run"),
    ResultColumn("finding", "text", "name of the finding"),
    ResultColumn("title", "text", "what is wrong"),
    ResultColumn("saving_ns", "ns", "time that mending it could save at most, per GPU"),
    ResultColumn("saving_pct", "%", "share of the span of the GPUs"),
    ResultColumn("overlaps", "text", "findings of the run whose savings hold time of this one; empty for none"),
    ResultColumn("evidence", "text", "the numbers that it rests on"),
    ResultColumn("query", "text", "the query that shows more"),
    ResultColumn("try", "text", "what to try"),
    ResultColumn("start_ns", "ns", "start of the longest stretch that it is about, on the clock of the recording"),
    ResultColumn("end_ns", "ns", "end of that"),
)


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
    query: Query


class Advice(NamedTuple):
    """A finding that is true of a run. Savings are per GPU, in ns and in % of the mean span of its GPUs."""

    run_id: str
    finding: str
    title: str
    saving_ns: int
    saving_pct: float
    overlaps: str | None
    evidence: str
    query: str
    attempt: str
    start_ns: int
    end_ns: int
    """The longest stretch that it is about, on the clock of the recording, as in the tables."""


def findings() -> list[Finding]:
    """All findings by name. Raises InputError for a file that is not of the form."""
    return [_finding(path) for path in sorted(FOLDER.glob("*.sql"))]


def _finding(path: Path) -> Finding:
    query = parse(path)
    found = re.findall(
        r"^(Saving|Overlaps|See|Try): (.*?)(?=^(?:Saving|Overlaps|See|Try): |\Z)", query.description, _MS
    )
    parts = {"Overlaps": ""} | {key: " ".join(text.split()) for key, text in found}
    if set(parts) != {"Saving", "Overlaps", "See", "Try"}:
        raise InputError(f"{path}: a finding needs the lines Saving:, See: and Try:")
    overlaps = frozenset(name.strip() for name in parts["Overlaps"].split(",") if name.strip())
    return Finding(path.stem, query.question, parts["Saving"], parts["See"], parts["Try"], overlaps, query)


def advise(engine: Engine, min_pct: float = 1.0) -> list[Advice]:
    """What costs each run time, run by run: causes first, the largest saving first, then findings that overlap them.

    `min_pct`: findings that could save less than so many % of the span are left out. Savings are upper bounds, and none
    is more than the span. Raises InputError.
    """
    if not min_pct >= 0:
        raise InputError(f"--min-pct {min_pct}: must be a number of %, 0 or more")
    if not engine.run_ids:
        raise InputError("advise: no run that --where selects")
    engine.keep = True  # Most findings rest on the same views.
    spans = dict(engine.rows("SELECT run_id, span_ns FROM run_gpus WHERE span_ns > 0", ["run_gpus"]))
    if not spans:
        raise InputError("advise: no run has GPU work with times; there is nothing to advise on")
    found: dict[str, list[tuple[Finding, int, str, int, int]]] = {}
    for finding in findings():
        for run_id, saving, evidence, start_ns, end_ns in engine.query(finding.query).rows():
            # What a finding's SQL adds up is time of the span already; this holds for the next one, too.
            saving_ns = min(round(saving), int(spans.get(run_id, 0)))
            if saving_ns > 0 and 100.0 * saving_ns / spans[run_id] >= min_pct:
                found.setdefault(run_id, []).append((finding, saving_ns, evidence, start_ns, end_ns))
    return [advice for run_id in sorted(found) for advice in _ranked(run_id, spans[run_id], found[run_id])]


def _ranked(run_id: str, span_ns: float, found: Sequence[tuple[Finding, int, str, int, int]]) -> list[Advice]:
    """The findings of one run in order."""
    advice = []
    for finding, saving_ns, evidence, start_ns, end_ns in found:
        overlaps = ", ".join(f.name for f, *_ in found if f.name in finding.overlaps) or None
        share = 100.0 * saving_ns / span_ns
        shown = (finding.title, saving_ns, share, overlaps, evidence, finding.see, finding.attempt, start_ns, end_ns)
        advice.append(Advice(run_id, finding.name, *shown))
    return sorted(advice, key=lambda a: (a.overlaps is not None, -a.saving_ns, a.finding))


def answer(advice: Sequence[Advice], note: str = "") -> Answer:
    """The advice as the result of a query: a row for each, of the fields of `Advice`."""
    from analyze.query.answer import row_answer

    shown = row_answer(COLUMNS, advice, "advise")
    shown.note = note
    return shown


def write_text(advice: Sequence[Advice], file: TextIO, chosen: bool = False) -> None:
    """The advice for people to read. `chosen`: the runs are not all that are there, so commands name them."""
    several = chosen or len({a.run_id for a in advice}) > 1
    for number, (run_id, group) in enumerate(groupby(advice, key=lambda a: a.run_id)):
        findings_of_run = list(group)
        numbers = {a.finding: n for n, a in enumerate(findings_of_run, 1)}
        only = f" --where {in_shell(_of_run(run_id))}" if several else ""
        file.write(f"{chr(10) if number else ''}{run_id}\n")
        for a in findings_of_run:
            saving = f"up to {a.saving_ns / 1e6:,.3f} ms ({a.saving_pct:.1f} %)"
            if a.overlaps:
                saving += f", overlaps {', '.join(str(n) for n in sorted(numbers[f] for f in a.overlaps.split(', ')))}"
            file.write(f"\n{numbers[a.finding]:3}. {a.title}: {saving}\n")
            file.write(f"     evidence: {a.evidence} (analyze query {a.query})\n")
            file.write(f"     try: {a.attempt}\n")
            file.write(f"     look: analyze trace PATH --open --at {a.finding}{only}\n")
    if not advice:
        file.write("no findings\n")


def _of_run(run_id: str) -> str:
    """SQL that holds for a run."""
    return "run_id = '" + run_id.replace("'", "''") + "'"
