"""Addresses of pages: which recordings and which query they show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from analyze.errors import InputError
from analyze.plots.figure import Rows, cut
from analyze.query.literals import of_run, text_literal
from analyze.query.query_declaration import Drill, Query
from analyze.query.query_files import find
from analyze.query.selection import Selection
from analyze.report.html_table import Link

LONGEST = 6_000
"""Longest address; a cell with a longer one has no link."""
ONLY = "is."
"""Prefix of address parameters that filter rows: `is.COLUMN=VALUE`."""


@dataclass(frozen=True)
class PageSelection:
    """Which of the served recordings a page is about, as its address says."""

    run: str = ""
    where: str = ""
    profiler: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> PageSelection:
        """Read it from the parameters of an address."""
        return cls(given.get("run", ""), given.get("where", "").strip(), given.get("profiler", ""))

    def narrow(self, selection: Selection) -> Selection:
        """Return that part of what is served."""
        return selection.narrowed(of_run(self.run) if self.run else None).narrowed(self.where, self.profiler)

    def pairs(self) -> list[tuple[str, str]]:
        """As parameters of an address."""
        return [("run", self.run), ("where", self.where), ("profiler", self.profiler)]


def literal(value: Any) -> str:
    """Return a value as SQL."""
    return str(value) if isinstance(value, bool | int | float) else text_literal(str(value))


def address(path: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return the address of a page; empty if it is too long."""
    text = urlencode([(k, v) for k, v in pairs if v], errors="replace")
    whole = f"{quote(path)}?{text}" if text else quote(path)
    return whole if len(whole) <= LONGEST else ""


def names_in(given: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the names of the runs of A and of B in an address, where each is a line."""
    a, b = ([name for name in given.get(side, "").splitlines() if name] for side in ("a", "b"))
    return a, b


def side_of(names: Sequence[str]) -> PageSelection:
    """Select the runs of one side: by the name of the run, or of one of its passes."""
    listed = ", ".join(map(text_literal, names)) or "NULL"
    return PageSelection(where=f"run_id IN ({listed}) OR workload_id IN ({listed})")


def whole_number(given: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of an address; None without it. Raises InputError."""
    text = given.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        raise InputError(f"{name}: expected a whole number, not {cut(text, 60)!r}")
    return int(text)


class Addresses:
    """Links of a page about a selection, as `analyze.report.page.Links`."""

    def __init__(self, selection: PageSelection, folders: Sequence[Path] = ()):
        self._selection = selection
        self._folders = folders

    def query(self, name: str, params: Mapping[str, str], by: Sequence[str] = (), run_id: str = "") -> str:
        """Return the address of a query."""
        chosen = replace(self._selection, run=run_id) if run_id else self._selection
        return address(f"/query/{name}", [*chosen.pairs(), ("by", ",".join(by)), *params.items()])

    def cells(self, query: Query, rows: Rows, params: Mapping[str, str], by: Sequence[str] = ()) -> Link:
        """Return the function that links cells: a run to its page, others by @drill of the query."""
        names = [c.name for c in rows.columns]
        _, _, choices = query.bind(dict(params))
        drills: dict[str, Drill] = {}
        for drill in query.drills:
            if _names(drill) <= {*names, *choices}:
                drills.setdefault(query.fill(drill.column, choices), drill)
        # A key that is not a parameter of the target query is a column of its answer.
        known = {d.query: {p.name for p in find(d.query, self._folders).params} for d in drills.values()}

        def link(column: str, row: tuple[Any, ...]) -> str:
            values = dict(zip(names, row, strict=True))
            chosen = self._of_row(values, by)
            if column == "run_id":
                return address("/run", chosen.pairs()) if values["run_id"] else ""
            if column not in drills or values[column] is None:
                return ""
            drill = drills[column]
            values = choices | values
            if any(values[name] is None for name in _names(drill)):
                return ""
            given = [(key, re.sub(r"\{(\w+)\}", lambda m: str(values[m[1]]), text)) for key, text in drill.values]
            pairs = [(key if key in known[drill.query] else ONLY + key, value) for key, value in given]
            return address(f"/query/{drill.query}", [*chosen.pairs(), *pairs])

        return link

    def _of_row(self, values: Mapping[str, Any], by: Sequence[str]) -> PageSelection:
        """Return the selection of the recordings of a row."""
        chosen = replace(self._selection, run=values["run_id"]) if values.get("run_id") else self._selection
        held = [
            f"{name} IS NULL" if values[name] is None else f"{name} = {literal(values[name])}"
            for name in by
            if name != "run_id"
        ]
        if not held:
            return chosen
        return replace(chosen, where=" AND ".join([f"({chosen.where})"] * bool(chosen.where) + held))


def _names(drill: Drill) -> set[str]:
    """Return the columns or parameters whose values a @drill uses."""
    return {name for _, text in drill.values for name in re.findall(r"\{(\w+)\}", text)}
