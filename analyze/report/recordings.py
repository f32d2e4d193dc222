"""The report of recordings."""

from __future__ import annotations

from analyze.advise import blocks_note
from analyze.report import first_screen, parts
from analyze.report.findings import advice
from analyze.report.page import Page, Section
from analyze.report.page_timeline import timeline_of_run
from analyze.report.report import Report


def page_of_recordings(report: Report, title: str | None) -> Page:
    """Return the page about the recordings of a report."""
    asked = parts.sections(report)
    total = sum(len(s["part"]) for s in asked) + 2
    done = 0
    sections, lacking = [], []
    report.progress(done, total, "health")
    checks, facts = first_screen.quality(first_screen.checks(report)), first_screen.facts(report)
    done += 1
    for s in asked:
        section = Section(s["id"], s["title"])
        for p in s["part"]:
            report.progress(done, total, p["query"])
            part = parts.part(report, p)
            done += 1
            if part is not None:
                section.parts.append(part)
            elif "lacks" in p:
                lacking.append((parts.heading(p), p["lacks"]))
        if section.parts:
            sections.append(section)
    report.progress(done, total, "advise")
    findings, advised = advice(report)
    report.progress(total, total, "")
    notes = [note] if (note := blocks_note(report.engine)) else []
    if report.several:
        notes.append("One run in detail: add --where \"run_id = '...'\" to the command at the end of this page")
    return Page(
        title or first_screen.title(report), facts, checks, findings, advised, sections, lacking, notes,
        report.page_command(), report.several, first_screen.main_figures(report),
        timeline=timeline_of_run(report, findings),
    )  # fmt: skip
