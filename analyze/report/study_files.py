"""Studies as data: a folder with a `report.toml`, whose form `studies/README.md` describes."""

from __future__ import annotations

import math
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

import schemas
from analyze.errors import InputError, unreadable
from analyze.plots import declared
from analyze.plots.figure import Rows
from analyze.query.query_files import RANK_COLUMNS, UNITS, ResultColumn, find
from analyze.query.recordings import PROFILERS
from schemas.files import is_dir, is_file, read_bounded
from schemas.tables import TABLES

FILE = "report.toml"
_PACKAGE = Path(schemas.__file__).parent
PLACES = (Path("studies"), _PACKAGE / "studies", _PACKAGE.parent / "studies")
"""Where a study is looked for by its name: here, in the installed package, in the sources beside the package."""

_RUN_COLUMNS = {c.name for c in TABLES["runs"].columns} | set(RANK_COLUMNS)

_TAKEN = ("top", "claims", "lacking", "content", "advice", "theme", "config", "tip", "said")
"""Anchors that the page has already."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*\Z")]
"""The anchor of a part in the page, and the table that claims read it as."""
Text = Annotated[str, msgspec.Meta(min_length=1)]
Cell = str | bool | int | float


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the file, in which nothing unknown may stand."""


class Printed(_Table):
    """What the study printed: its numbers where its text has them, and where they stand in it."""

    source: Text
    text: str = ""
    columns: dict[Name, str] = {}
    """Units by name, in the order of the cells of a row."""
    rows: list[list[Cell]] = []
    figure: str = ""

    @property
    def answer(self) -> Rows:
        """Its table, as that of a question; an empty text is a cell in which the study has nothing."""
        columns = tuple(ResultColumn(name, unit, "") for name, unit in self.columns.items())
        return Rows(columns, [tuple(None if v == "" else v for v in row) for row in self.rows])


class Part(_Table):
    """A question, asked of some of the runs, and what the study printed about it."""

    id: Name | None = None
    title: str = ""
    query: str = ""
    sql: str = ""
    params: dict[str, str | int | float] = {}
    by: list[str] = []
    where: str | None = None
    profiler: str | None = None
    keep: dict[str, list[Cell] | str] = {}
    sort: str = ""
    figure: str | None = None
    columns: list[str] = []
    rows: Annotated[int, msgspec.Meta(ge=1)] = 100
    table: bool = True
    text: str = ""
    lacks: str = ""
    different: str = ""
    printed: Printed | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Its parameters, as a command line gives them."""
        return {name: str(value) for name, value in self.params.items()}


class Section(_Table):
    """Parts under a heading."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]*\Z")]
    title: Text
    text: str = ""
    part: list[Part] = []


class Claim(_Table):
    """What the study says, and how to tell from the answers of the parts whether it is so."""

    text: Text
    source: Text
    sql: Text
    note: str = ""


class Study(_Table):
    """A report to be made of a study's runs."""

    title: Text
    about: Text
    section: list[Section]
    study: dict[str, Text] = {}
    """Facts about what the study ran on."""
    claim: list[Claim] = []

    @property
    def parts(self) -> list[tuple[str, Section, Part]]:
        """All parts, each with its place in the file and its section."""
        return [
            (f"section[{s}].part[{p}]", of, part) for s, of in enumerate(self.section) for p, part in enumerate(of.part)
        ]


def by_name() -> dict[str, Path]:
    """The files of the studies that can be named."""
    found: dict[str, Path] = {}
    for place in PLACES:
        for path in sorted(place.glob(f"*/{FILE}")):
            found.setdefault(path.parent.name, path)
    return found


def find_file(name: str | os.PathLike[str]) -> Path:
    """The file of a study: by its name, or the path of its folder or of the file. Raises InputError."""
    path = Path(name)
    try:
        folder = is_dir(path)
        file = path / FILE if folder else path
        if is_file(file):
            return file
    except (OSError, ValueError) as e:
        raise unreadable(path, e) from e
    known = by_name()
    if str(name) in known:
        return known[str(name)]
    if folder:
        raise InputError(f"{path}: no study: there is no {FILE} in it")
    there = f"there are {', '.join(known)}" if known else "there are none here"
    raise InputError(f"there is no study {str(name)!r}; {there}; or give a folder with a {FILE}")


def load(path: Path) -> Study:
    """Read and check the file of a study. Raises InputError, naming the file and the key."""
    try:
        raw = tomllib.loads(read_bounded(path).decode())
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: not TOML: {e}") from e
    except RecursionError:
        raise InputError(f"{path}: not TOML: nested too deeply") from None
    try:
        study = msgspec.convert(raw, Study)
    except msgspec.ValidationError as e:
        said, _, at = str(e).partition(" - at ")
        raise InputError(f"{path}: {at.strip('`').removeprefix('$.') or FILE}: {said}") from e
    seen = set(_TAKEN)
    for i, section in enumerate(study.section):
        if section.id in seen:
            raise InputError(f"{path}: section[{i}].id: {section.id!r} is taken")
        seen.add(section.id)
    for at, _, part in study.parts:
        if part.id is not None:
            if part.id in seen:
                raise InputError(f"{path}: {at}.id: {part.id!r} is taken")
            seen |= {part.id, f"{part.id}_printed"}
        try:
            _check(part)
        except InputError as e:
            raise InputError(f"{path}: {at}.{e}") from e
    return study


def _check(part: Part) -> None:
    """Raise InputError, beginning with the key, for what cannot be asked or drawn."""
    if part.query and part.sql:
        raise InputError("sql: give a query or SQL, not both")
    if not (part.query or part.sql) and part.printed is None:
        raise InputError("query: give one, or SQL, or what the study printed")
    if not part.query and not part.title:
        raise InputError("title: what is no query needs one")
    if part.by and not part.query:
        raise InputError("by: only a query has groups; SQL has its own GROUP BY")
    for name in part.by:
        if name not in _RUN_COLUMNS:
            raise InputError(f"by: runs has no column {name!r}; it has {', '.join(sorted(_RUN_COLUMNS))}")
    if part.sort and not part.query:
        raise InputError("sort: SQL has its own ORDER BY" if part.sql else "sort: there is no query")
    if part.profiler not in (None, "all", *PROFILERS):
        raise InputError(f"profiler: must be one of {', '.join(PROFILERS)} or all, not {part.profiler!r}")
    for name, values in part.keep.items():
        if isinstance(values, str) and values != "positive":
            raise InputError(f'keep.{name}: a list of values, or "positive"')
    if part.query:
        _check_query(part)
    if part.printed is not None:
        _check_printed(part.printed)


def _check_query(part: Part) -> None:
    query = _blame("query", lambda: find(part.query))
    _, _, choices = _blame("params", lambda: query.bind(part.texts))
    known = [*part.by, *(c.name for c in query.result_columns(choices))]
    sorted_by = [term.strip().lstrip("-+") for term in part.sort.split(",") if term.strip()]
    for key, named in (("columns", part.columns), ("keep", part.keep), ("sort", sorted_by)):
        for name in named:
            if name not in known:
                raise InputError(f"{key}: {part.query} has no column {name!r}; it has {', '.join(known)}")
    if part.figure not in (None, "none"):
        _blame("figure", lambda: declared.of_query(query, part.texts, part.figure, part.by))


def _check_printed(printed: Printed) -> None:
    for name, unit in printed.columns.items():
        if unit not in UNITS:
            raise InputError(f"printed.columns.{name}: there is no unit {unit!r}; there are {', '.join(sorted(UNITS))}")
    for i, row in enumerate(printed.rows):
        if len(row) != len(printed.columns):
            raise InputError(f"printed.rows[{i}]: {len(row)} cells for {len(printed.columns)} columns")
        for value, (name, unit) in zip(row, printed.columns.items(), strict=True):
            if value != "" and not _is_in(value, unit):
                raise InputError(f"printed.rows[{i}]: {name} is in {unit}: {value!r} is no such value")
    if printed.figure:
        declaration = _blame("printed.figure", lambda: declared.parse(printed.figure, "figure"))
        for name in declaration.columns:
            if name not in printed.columns:
                raise InputError(f"printed.figure: {name} is no column of printed.columns")
        _blame("printed.figure", lambda: declared.draw(declaration, printed.answer, _nothing))


def _nothing(name: str, **params: str) -> Rows:
    """The answer to what the figure of a printed table asks beside it."""
    raise InputError(f"what a study printed has no {name}")


def _is_in(value: Cell, unit: str) -> bool:
    """Whether a column of the unit can hold the value."""
    if unit in ("text", "id", "time"):
        return isinstance(value, str)
    if unit == "bool" or isinstance(value, bool):
        return unit == "bool" and isinstance(value, bool)
    return not isinstance(value, str) and math.isfinite(value)


def _blame(key: str, do: Any) -> Any:
    """What `do` gives; of what it raises, the key is said."""
    try:
        return do()
    except InputError as e:
        raise InputError(f"{key}: {e}") from e
