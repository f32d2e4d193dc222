"""The parts of a page that `page.toml` declares: queries with their figures, tables and commands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyze.errors import InputError, MachineError
from analyze.plots import declared
from analyze.plots.figure import Rows
from analyze.plots.per import Counts
from analyze.query.query_files import find
from analyze.report.html_table import table
from analyze.report.page import Part
from analyze.report.report import Report


def page_toml() -> dict[str, Any]:
    """Return the content of `page.toml`."""
    return tomllib.loads((Path(__file__).parent / "page.toml").read_text(encoding="utf-8"))


def sections(report: Report) -> list[dict[str, Any]]:
    """Return the sections that `page.toml` declares for one run or for several."""
    when = ("any", "several" if report.several else "one")
    other = "cpu" if report.on_gpu else "gpu"
    chosen = [s for s in page_toml()["section"] if s["when"] in when]
    return [s | {"part": [p for p in s["part"] if p.get("on", s.get("on")) != other]} for s in chosen]


def answerable(report: Report, section: Mapping[str, Any]) -> bool:
    """Return whether the recordings have the data of one of the parts of a section."""
    return any(not report.lacks(report.engine, find(p["query"]), p.get("params", {})) for p in section["part"])


def heading(part: Mapping[str, Any]) -> str:
    """Return the heading of a declared part."""
    return str(part.get("title") or find(part["query"]).question)


def part(report: Report, declaration: Mapping[str, Any]) -> Part | None:
    """Return a part of the page; None without rows."""
    query = find(declaration["query"])
    params = dict(declaration.get("params", {}))
    by = report.by if declaration.get("by") == "differing" else ()
    rows = filter_rows(report.run_query(query.name, params, by), declaration.get("keep", {}))
    if not rows.rows:
        return None
    text = declaration.get("figure", query.plot)
    text = re.sub(r"\bBY\b", ",".join(by), text)
    own_block = query.prefer == "gpu" and report.engine_for(query, by).run_ids != report.engine.run_ids
    part = Part(
        heading(declaration) + (" (GPU-only block)" if own_block else ""),
        query.description,
        query.name,
        report.command(query.name, params, replace(report.selection, by=by)),
        query.filled(params),
        link=report.links.query(query.name, params, by) if report.links else "",
    )
    if text not in ("", "none"):
        try:
            counts = None if by else Counts.of(report.engine_for(query, by))
            figure = declared.of_query(query, params, text, by)
            part.figure = declared.draw(figure, rows, report.run_query, counts)
        except (InputError, MachineError) as e:
            part.note = str(e)
    if declaration.get("table", True):
        link = report.links.cells(query, rows, params, by) if report.links else None
        part.table = table(rows, declaration.get("columns", ()), declaration.get("rows", 100), link)
        part.open = part.figure is None
    return part if part.figure or part.table else None


def filter_rows(rows: Rows, keep: Mapping[str, Any]) -> Rows:
    """Return the rows with one of the values in a column; `positive`: above 0, `known`: not NULL."""
    for name, values in keep.items():
        at = rows.at(name)
        if values == "known":
            left = [r for r in rows.rows if r[at] is not None]
        elif values == "positive":
            left = [r for r in rows.rows if isinstance(r[at], int | float) and r[at] > 0]
        else:
            left = [r for r in rows.rows if r[at] in values]
        rows = Rows(rows.columns, left)
    return rows
