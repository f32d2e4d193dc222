"""The report that compares two recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyze.errors import InputError, MachineError
from analyze.plots import declared
from analyze.plots.figure import Rows
from analyze.render import visible
from analyze.report import first_screen
from analyze.report.html_table import table
from analyze.report.page import ComparedFigure, Page, Part, Section
from analyze.report.page_timeline import timeline_of_both
from analyze.report.parts import page_toml
from analyze.report.report import Report
from analyze.shell import command


def page_of_changes(before: Report, after: Report, title: str | None) -> Page:
    """Return the page that compares two reports."""
    figures, notes = figures_of_both(before, after)
    sections, lacking = [Section("changes", "What changed")], []
    declarations = declared_changes()
    for done, c in enumerate(declarations):
        before.progress(done, len(declarations), f"compare {c['level']}")
        try:
            part, said = change(before, after, c)
        except (InputError, MachineError) as e:
            lacking.append((c["title"], str(e)))
            continue
        notes += [n for n in said if n not in notes]
        sections[0].parts += [part] if part else []
    before.progress(len(declarations), len(declarations), "")
    sides = (("A", before), ("B", after))
    checks = [{**t, "fact": f"{side}: {t['fact']}"} for side, r in sides for t in first_screen.checks(r)]
    words = ["analyze", "report", *before.paths, "--compare", *after.paths, "-o", "report.html"]
    return Page(
        title or title_of_both(before, after), facts_of_both(before, after), first_screen.quality(checks), [], "",
        sections, lacking, notes, visible(command(words)), before.several, changes=figures,
        timeline=timeline_of_both(before, after),
    )  # fmt: skip


def declared_changes() -> list[dict[str, Any]]:
    """Return the declarations of the parts, from `page.toml`."""
    return list(page_toml()["compare"])


def change(before: Report, after: Report, declaration: Mapping[str, Any]) -> tuple[Part | None, list[str]]:
    """Return a part and its notes; None without rows. Raises InputError if they cannot be compared this way."""
    from analyze.comparison import compare

    level, time = declaration["level"], declaration.get("time", "gpu")
    # A page shows also what is not comparable: the notes say what differs.
    result = compare(before.compared_with(after), level=level, time=time, naive=True)
    rows = Rows.of(result.answer)
    if not rows.rows or (declaration.get("repeated") and not result.repeated):
        return None, list(result.notes)
    judged = not rows.has("status") or declaration.get("repeated")
    changed = [r for r in rows.rows if judged or r[rows.at("status")] != "same"]
    words = ["analyze", "compare", *before.paths, *after.paths, "--level", level]
    words += ["--time", time] if time != "gpu" else []
    for side, report in (("a", before), ("b", after)):
        words += [f"--where-{side}", report.selection.condition] if report.selection.condition else []
    part = Part(declaration["title"], "", f"compare {level}", visible(command(words)), "")
    shown = rows if declaration["figure"].startswith("icicle") else Rows(rows.columns, changed)
    part.figure = declared.draw(declared.parse(declaration["figure"], "page.toml"), shown, before.run_query)
    part.table = table(Rows(rows.columns, changed or rows.rows), (), 200)
    part.open = part.figure is None
    return part, list(result.notes)


def figures_of_both(before: Report, after: Report) -> tuple[list[ComparedFigure], list[str]]:
    """Return the main figures of both recordings, with verdicts, and notes about them."""
    from analyze.comparison import compare

    # A page shows also what is not comparable: the notes say what differs.
    result = compare(before.compared_with(after), level="measure", naive=True)
    return first_screen.compared(Rows.of(result.answer).dicts()), list(result.notes)


def title_of_both(before: Report, after: Report) -> str:
    """Return the default title."""
    return f"{first_screen.title(before)} (A) and {first_screen.title(after)} (B)"


def facts_of_both(before: Report, after: Report) -> list[tuple[str, str]]:
    """Return the facts about both recordings."""
    a, b = dict(first_screen.facts(before)), dict(first_screen.facts(after))
    return [
        (k, a[k]) if a.get(k) == b.get(k) else (k, f"A: {a.get(k, 'unknown')}; B: {b.get(k, 'unknown')}")
        for k in {**a, **b}
    ]
