"""The timeline of a page: of a run, of both its blocks, or of the runs that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analyze.plots.theme import FAMILIES, MEANINGS
from analyze.report.page import PageFinding, PageTimeline
from analyze.report.report import Report
from analyze.report.timeline import Timeline
from analyze.report.timelines import Timelines

_COLORS = FAMILIES | {
    name: MEANINGS[name]
    for name in ("op", "range", "python", "module", "memcpy", "memset", "idle", "waiting", "compute", "copies")
} | {"call": "#c9761a", "overhead": MEANINGS["profiler"], "async": MEANINGS["communication"]}  # fmt: skip
"""Colours by kernel family and kind of event."""

_LINKED = ("kernel-share", "copies", "ops", "cuda-api", "gaps")
"""Queries that the page links events to."""

_BLOCKS = {"GPU only": "gpu", "full": "full"}
"""Values of --block, by label."""


def timeline_of_run(report: Report, findings: Sequence[PageFinding] = (), source: str = "") -> PageTimeline | None:
    """Return the timeline of the one run that was timed: with its events, or with the address `source` that sends them.

    Of a long run, a page has the steps of the first finding.
    """
    if report.timelines is None:
        return None
    events = None if source else report.timelines.in_file(next((f.moment for f in findings if f.moment), None))
    sides = [(label, report, run_id) for label, run_id in report.timelines.runs]
    about = "The GPU-only block above the full one; their first steps start together." if len(sides) > 1 else ""
    return _timeline(sides, about, source, events)


def timelines_of_both(before: Report, after: Report) -> Timelines:
    """Return the timelines of both recordings: of the first run of each side that has one."""
    sides = (("A", before), ("B", after))
    return Timelines([(label, Timeline(of.engine, run["run_id"])) for label, of in sides for run in of.timed[:1]])


def timeline_of_both(before: Report, after: Report, source: str = "") -> PageTimeline | None:
    """Return the timeline of the page, A above B; None if only one of them has events with times."""
    both = timelines_of_both(before, after)
    if len(both.runs) < 2:
        return None
    reports = {"A": before, "B": after}
    of = [f"{label}, {len(report.timed)} runs, is the first" for label, report in reports.items() if report.several]
    about = "A above B; the first steps that are shown start together." + (f" Of {'; of '.join(of)}." if of else "")
    sides = [(label, reports[label], run_id) for label, run_id in both.runs]
    return _timeline(sides, about, source, None if source else both.in_file())


def _timeline(
    sides: Sequence[tuple[str, Report, str]], about: str, source: str, events: Mapping[str, Any] | None
) -> PageTimeline:
    """Return the timeline of a page. `sides`: labels of its runs, each with its report and, if not alone, its id."""
    commands: dict[str, dict[str, str]] = {}
    links, tables = {}, []
    for label, report, run_id in sides:
        selection = replace(report.selection, block=_BLOCKS.get(label, report.selection.block))
        commands[label] = {name: report.command(name, {}, selection) for name in (*_LINKED, "timeline")}
        link = report.links.query("timeline", {}, run_id=run_id if label else "") if report.links else ""
        links[label] = link.partition("?")[2]
        tables.append((commands[label].pop("timeline"), link))
    given = {"source": source, "links": links} if source else {"events": events, "commands": commands}
    return PageTimeline({"colors": _COLORS, **given}, tables, about)
