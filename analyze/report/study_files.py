"""Find and read `report.toml` of a study; `studies/README.md` describes the format."""

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
from analyze.query.query_declaration import UNITS, ResultColumn
from analyze.query.query_files import find
from analyze.query.selection import PROFILERS, RUN_COLUMNS
from schemas.files import is_dir, is_file, read_bounded

FILE = "report.toml"
_PACKAGE = Path(schemas.__file__).parent
PLACES = (Path("studies"), _PACKAGE / "studies", _PACKAGE.parent / "studies")
"""Folders with studies: in the current directory, in the installed package, in the source tree."""

_TAKEN = ("top", "claims", "lacking", "content", "advice", "theme", "config", "tip", "said")
"""Anchors of the page itself."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*\Z")]
"""Anchor of a part in the page, and its table name in claims."""
Text = Annotated[str, msgspec.Meta(min_length=1)]
Cell = str | bool | int | float


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the file; unknown keys are errors."""


class Printed(_Table):
    """Numbers or words that the study printed, with their source."""

    source: Text
    text: str = ""
    columns: dict[Name, str] = {}
    """Unit by column name, in the order of the cells."""
    rows: list[list[Cell]] = []
    figure: str = ""

    @property
    def answer(self) -> Rows:
        """Return the rows; an empty text is an empty cell."""
        columns = tuple(ResultColumn(name, unit, "") for name, unit in self.columns.items())
        return Rows(columns, [tuple(None if v == "" else v for v in row) for row in self.rows])


class StudyPart(_Table):
    """A query of some of the runs, and what the study printed about it."""

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
        """Return its parameters as text, as on a command line."""
        return {name: str(value) for name, value in self.params.items()}


class StudySection(_Table):
    """Parts under a heading."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]*\Z")]
    title: Text
    text: str = ""
    part: list[StudyPart] = []


class StudyClaim(_Table):
    """A claim of the study, with SQL over the parts that checks it."""

    text: Text
    source: Text
    sql: Text
    note: str = ""


class StudyMeasure(_Table):
    """A main figure of the study: the first column of the one row of its SQL over the parts."""

    name: Text
    part: Name
    """The part that it is from."""
    sql: Text


class Study(_Table):
    """The content of `report.toml`."""

    title: Text
    about: Text
    section: list[StudySection]
    study: dict[str, Text] = {}
    """Facts about the original study."""
    measure: list[StudyMeasure] = []
    claim: list[StudyClaim] = []

    @property
    def parts(self) -> list[tuple[str, StudySection, StudyPart]]:
        """Return all parts, each with its key in the file and its section."""
        return [
            (f"section[{s}].part[{p}]", of, part) for s, of in enumerate(self.section) for p, part in enumerate(of.part)
        ]


def by_name() -> dict[str, Path]:
    """Return the files of all studies by name."""
    found: dict[str, Path] = {}
    for place in PLACES:
        for path in sorted(place.glob(f"*/{FILE}")):
            found.setdefault(path.parent.name, path)
    return found


def find_file(name: str | os.PathLike[str]) -> Path:
    """Return the file of a study by its name, folder or file. Raises InputError."""
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
        raise InputError(f"{path}: not a study: no {FILE} in it")
    there = f"known studies: {', '.join(known)}" if known else "no studies were found"
    raise InputError(f"no study {str(name)!r}; {there}; or give a folder with a {FILE}")


def load(path: Path) -> Study:
    """Read and check the file of a study. Raises InputError that names the file and the key."""
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
    ids = {part.id for _, _, part in study.parts}
    for i, measure in enumerate(study.measure):
        if measure.part not in ids:
            raise InputError(f"{path}: measure[{i}].part: no part has the id {measure.part!r}")
    return study


def _check(part: StudyPart) -> None:
    """Raise InputError, beginning with the key, for a bad query or figure."""
    if part.query and part.sql:
        raise InputError("sql: only one of query and sql is allowed")
    if not (part.query or part.sql) and part.printed is None:
        raise InputError("query: expected query, sql or printed")
    if not part.query and not part.title:
        raise InputError("title: required without a query")
    if part.by and not part.query:
        raise InputError("by: needs a query; SQL uses GROUP BY")
    for name in part.by:
        if name not in RUN_COLUMNS:
            raise InputError(f"by: runs has no column {name!r}; it has {', '.join(sorted(RUN_COLUMNS))}")
    if part.sort and not part.query:
        raise InputError("sort: needs a query; SQL uses ORDER BY" if part.sql else "sort: needs a query")
    if part.profiler not in (None, "all", *PROFILERS):
        raise InputError(f"profiler: must be one of {', '.join(PROFILERS)} or all, not {part.profiler!r}")
    for name, values in part.keep.items():
        if isinstance(values, str) and values != "positive":
            raise InputError(f'keep.{name}: expected a list of values, or "positive"')
    if part.query:
        _check_query(part)
    if part.printed is not None:
        _check_printed(part.printed)


def _check_query(part: StudyPart) -> None:
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
            raise InputError(f"printed.columns.{name}: unknown unit {unit!r}; expected {', '.join(sorted(UNITS))}")
    for i, row in enumerate(printed.rows):
        if len(row) != len(printed.columns):
            raise InputError(f"printed.rows[{i}]: {len(row)} cells for {len(printed.columns)} columns")
        for value, (name, unit) in zip(row, printed.columns.items(), strict=True):
            if value != "" and not _is_in(value, unit):
                raise InputError(f"printed.rows[{i}]: {name}: {value!r} is not a value in {unit}")
    if printed.figure:
        declaration = _blame("printed.figure", lambda: declared.parse(printed.figure, "figure"))
        for name in declaration.columns:
            if name not in printed.columns:
                raise InputError(f"printed.figure: {name} is not a column of printed.columns")
        _blame("printed.figure", lambda: declared.draw(declaration, printed.answer, _nothing))


def _nothing(name: str, **params: str) -> Rows:
    """Refuse further queries for a figure of printed numbers."""
    raise InputError(f"printed numbers have no {name}")


def _is_in(value: Cell, unit: str) -> bool:
    """Return whether a value is valid in a unit."""
    if unit in ("text", "id", "time"):
        return isinstance(value, str)
    if unit == "bool" or isinstance(value, bool):
        return unit == "bool" and isinstance(value, bool)
    return not isinstance(value, str) and math.isfinite(value)


def _blame(key: str, do: Any) -> Any:
    """Return what `do` returns; prefix its InputError with the key."""
    try:
        return do()
    except InputError as e:
        raise InputError(f"{key}: {e}") from e
