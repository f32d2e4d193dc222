"""Findings: what costs a run time, ranked by the time that mending it could save, each with its numbers.

A finding is a file in `analyze/advice/`, of the form of a query file: its first line is what is wrong, the lines
`Saving:`, `See:` and `Try:` say how the saving is computed, which query shows more, and what to do; its SELECT returns
a row for each run that the finding is true of, with the saving and the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from analyze.errors import InputError
from analyze.query_files import Query, ResultColumn, parse

if TYPE_CHECKING:
    from analyze.engine import Answer
    from analyze.store import Store

FOLDER = Path(__file__).parent / "advice"

COLUMNS = (
    ResultColumn("run_id", "id", "the run"),
    ResultColumn("finding", "text", "name of the finding"),
    ResultColumn("title", "text", "what is wrong"),
    ResultColumn("saving_ns", "ns", "time that mending it could save at most, per GPU"),
    ResultColumn("saving_pct", "%", "share of the span of the GPUs"),
    ResultColumn("evidence", "text", "the numbers that it rests on"),
    ResultColumn("query", "text", "the query that shows more"),
    ResultColumn("try", "text", "what to try"),
)


class Finding(NamedTuple):
    """A finding as its file declares it."""

    name: str
    title: str
    saving: str
    """How the saving is computed."""
    see: str
    attempt: str
    query: Query


class Advice(NamedTuple):
    """A finding that is true of a run. Savings are per GPU, in ns and in % of the mean span of its GPUs."""

    run_id: str
    finding: str
    title: str
    saving_ns: int
    saving_pct: float | None
    evidence: str
    query: str
    attempt: str


def findings() -> list[Finding]:
    """All findings by name. Raises InputError for a file that is not of the form."""
    return [_finding(path) for path in sorted(FOLDER.glob("*.sql"))]


def _finding(path: Path) -> Finding:
    query = parse(path)
    parts = dict(re.findall(r"^(Saving|See|Try): (.*?)(?=^(?:Saving|See|Try): |\Z)", query.description, re.M | re.S))
    if set(parts) != {"Saving", "See", "Try"}:
        raise InputError(f"{path}: a finding needs the lines Saving:, See: and Try:")
    saving, see, attempt = (" ".join(parts[k].split()) for k in ("Saving", "See", "Try"))
    return Finding(path.stem, query.question, saving, see, attempt, query)


def advise(stores: Sequence[Store], where: str | None = None, min_pct: float = 1.0) -> list[Advice]:
    """What costs each run time, run by run, the largest saving first.

    `where`: SQL over the columns of runs and rank. `min_pct`: findings that could save less than so many % of the span
    are left out. Savings are upper bounds and overlap: they do not add up. Raises InputError.
    """
    from analyze.engine import Engine

    engine = Engine(stores, where=where)
    if not engine.run_ids:
        raise InputError("advise: no run that --where selects")
    spans = dict(engine.sql("SELECT run_id, span_ns FROM run_gpus").rows())
    if not spans:
        raise InputError("advise: no run has GPU work with times; there is nothing to advise on")
    found = []
    for finding in findings():
        for run_id, saving, evidence in engine.query(finding.query).rows():
            share = 100.0 * saving / spans[run_id] if spans.get(run_id) else None
            if saving > 0 and (share is None or share >= min_pct):
                found.append(
                    Advice(
                        run_id,
                        finding.name,
                        finding.title,
                        round(saving),
                        share,
                        evidence,
                        finding.see,
                        finding.attempt,
                    )
                )
    return sorted(found, key=lambda a: (a.run_id, -a.saving_ns, a.finding))


def answer(advice: Sequence[Advice]) -> Answer:
    """The advice as the result of a query, for the other output forms."""
    from analyze.row_answer import row_answer

    return row_answer(COLUMNS, advice, "advise")


def write_text(advice: Sequence[Advice], file: TextIO) -> None:
    """The advice for people to read."""
    run_id = None
    for number, a in enumerate(advice):
        if a.run_id != run_id:
            file.write(f"{'' if run_id is None else chr(10)}{a.run_id}\n")
            run_id, first = a.run_id, number
        share = "" if a.saving_pct is None else f" ({a.saving_pct:.1f} %)"
        file.write(f"\n{number - first + 1:3}. {a.title}: up to {a.saving_ns / 1e6:,.3f} ms{share}\n")
        file.write(f"     evidence: {a.evidence} (analyze query {a.query})\n")
        file.write(f"     try: {a.attempt}\n")
    if not advice:
        file.write("no findings\n")
