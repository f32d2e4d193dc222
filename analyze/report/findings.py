"""The findings of `advise` on a page: what each could save, where it is, and its command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analyze.advise import UNSURE, Advice, advise
from analyze.errors import InputError, MachineError
from analyze.plots.figure import cut, quantity
from analyze.query.literals import of_run
from analyze.report.page import PageFinding
from analyze.report.parts import filter_rows, page_toml
from analyze.report.report import Report


def advice(report: Report) -> tuple[list[PageFinding], str]:
    """Return the findings as they are shown, or the reason why there are none."""
    try:
        findings = _findings(report, advise(report.engine))
    except (InputError, MachineError) as e:
        return [], str(e).removeprefix("advise: ")
    return findings, "" if findings else "no finding could save 1 % of the time or more"


def _findings(report: Report, found: Sequence[Advice]) -> list[PageFinding]:
    """Return the advice for the page, each finding once."""
    places, timelines = page_toml()["place"], report.timelines
    titles = {a.finding: a.title for a in found}
    same: dict[str, list[Advice]] = {}
    for a in found:
        same.setdefault(a.finding, []).append(a)
    for of in same.values():
        of.sort(key=lambda a: -a.saving_pct)
    # Of several runs, each finding is shown once, with the run in which it costs most.
    worst = sorted((of[0] for of in same.values()), key=lambda a: -a.saving_pct) if report.several else _ranked(found)
    shown = []
    for a in worst:
        of_its_run = replace(report.selection, where=(of_run(a.run_id),)) if report.several else report.selection
        declaration = places.get(a.finding, {})
        overlaps = "; ".join(titles.get(name, name) for name in (a.overlaps or "").split(", ") if name)
        params = declaration.get("params", {}) if declaration.get("query") == a.query else {}
        shown.append(
            PageFinding(
                title=a.title + ("" if a.run_id in report.engine.run_ids else " (GPU-only block)"),
                saving=_saving(a),
                share=f"{a.saving_pct:.1f} %",
                evidence=cut(a.evidence, 600),
                attempt=a.attempt,
                place="; ".join(filter(None, (cut(a.place, 400), _place(report, declaration)))),
                command=report.command(a.query, params, of_its_run),
                overlaps=overlaps,
                run_id=cut(a.run_id, 120),
                runs=[(cut(o.run_id, 120), f"{_saving(o)} ({o.saving_pct:.1f} %)") for o in same[a.finding]],
                query=a.query,
                link=report.links.query(a.query, params, run_id=a.run_id) if report.links else "",
                moment=timelines.moment(a.run_id, a.rank, a.device, a.start_ns, a.end_ns) if timelines else None,
            )
        )
    return shown


def _place(report: Report, declaration: Mapping[str, Any]) -> str:
    """Return the sentence about the location of a finding; empty if unknown."""
    if not declaration or report.several:
        return ""
    rows = filter_rows(
        report.run_query(declaration["query"], declaration.get("params", {})), declaration.get("keep", {})
    )
    found = rows.dicts()
    if most := declaration.get("most"):
        found.sort(key=lambda r: -(r[most] or 0))
    if not found:
        return ""
    units = {c.name: c.unit for c in rows.columns}
    said = {k: cut(quantity(v, units[k]), 120) for k, v in found[0].items()}
    return re.sub(r" \(\N{EN DASH}\)", "", str(declaration["text"]).format(**said))


def _saving(advice: Advice) -> str:
    """Return the saving, what it is with the profiler if that is more, and how sure it is."""
    saving = quantity(advice.saving_ns, "ns")
    if advice.recorded_saving_ns > advice.saving_ns:
        saving += f", {quantity(advice.recorded_saving_ns, 'ns')} with the profiler"
    return saving + UNSURE.get(advice.confidence, "")


def _ranked(found: Sequence[Advice]) -> list[Advice]:
    """Return the findings of both blocks of a run in the order of `advise`."""
    return sorted(found, key=lambda a: (a.overlaps is not None, -a.saving_pct, a.finding))
