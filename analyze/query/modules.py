"""SQL modules: views, tables and macros that queries share (`queries/modules`), and tables computed in Python.

A module is one file for one subject. Comment lines document it, and each view, table and macro above its CREATE::

    -- What the module is about.
    -- @use intervals                                           other modules that its SQL reads
    -- @table gpu_tracks  a row is a GPU of a process.          more lines may follow
    -- @columns track, run_id, rank, device                     its columns in order: those in STANDARD
    -- @column busy_pct %     Busy time / span.                 and others, with their unit
    CREATE TABLE gpu_tracks AS ...

    -- @view step_waits  a row is a step with its wait for data.
    -- @column * of step_times                                  or all columns of another one
    CREATE VIEW step_waits AS ...

    -- @macro pct(part, whole)  100 * part / whole.             table macros also have @column lines
    CREATE MACRO pct(part, whole) AS ...

Use a table if it has few rows and is read in several places: a query computes it once. DuckDB plans a view again in
each place that reads it, and reads only the columns and rows needed there.

`@use` names exactly the modules whose views, tables and macros the SQL reads. CTE names begin with `_`, so that a CTE
of a macro does not hide a table whose name the macro is given. A table computed in Python (`analyze.query.computed`)
is a module of the same form, without SQL.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from analyze.errors import InputError, unreadable
from analyze.query.computed import COMPUTED, Create
from analyze.query.query_declaration import UNITS, ResultColumn
from analyze.query.query_files import BUILT_IN, LONGEST, MODULES, names_of, unwrap
from analyze.stored_tables import TABLES
from schemas.files import read_bounded

MODULE_UNITS = UNITS | {"row"}
"""Units of a query's columns, and `row`: a struct of all columns of a table."""

STANDARD = {
    name: ResultColumn(name, unit, doc)
    for name, unit, doc in (
        ("run_id", "id", "The run."),
        ("rank", "index", "Process rank."),
        ("run_group", "index", "Group of runs (--by); NULL without."),
        ("device", "index", "GPU."),
        ("stream", "id", "CUDA stream."),
        ("pid", "id", "Process."),
        ("tid", "id", "Thread."),
        ("correlation_id", "id", "Joins a CUDA call and the GPU work that it launched."),
        ("track", "index", "Track: only intervals on the same one are combined."),
        ("start_ns", "ns", "Start."),
        ("end_ns", "ns", "End."),
        ("dur_ns", "ns", "Duration."),
        ("calls", "count", "Calls."),
        ("total_ns", "ns", "Sum of durations."),
        ("min_ns", "ns", "Shortest."),
        ("max_ns", "ns", "Longest."),
    )
}
"""Columns that many views have; `@columns` names them."""

_USE = re.compile(r"^@use\s+(.*)$")
_VIEW = re.compile(r"^@(?:view|table)\s+(\w+)\s+a row is (.*)$")
_MACRO = re.compile(r"^@macro\s+(\w+)\(([\w, ]*)\)\s+(.*)$")
_CREATE = re.compile(r"^(?=CREATE )", re.MULTILINE)
_REMARK = re.compile(r"^\s*--.*", re.MULTILINE)
_WORD = re.compile(r"\w+")
_COLUMNS = re.compile(r"^@columns\s+([\w, ]+)$")
_COLUMN = re.compile(r"^@column\s+(\w+)\s+(\S+)\s+(.*)$")
_SPREAD = re.compile(r"^@column\s+\* of (\w+)$")


@dataclass
class Definition:
    """A view, table or macro of a module."""

    name: str
    params: tuple[str, ...] | None
    """Of a macro; None for a view or table."""
    doc: str
    """What a row of a view or table is, or what a macro returns."""
    columns: tuple[ResultColumn, ...] = ()
    """All but a scalar macro have some. One named `*` stands for all that the documentation of its `doc` lists."""

    @property
    def shown(self) -> str:
        """Its name, with a macro's parameters."""
        return self.name if self.params is None else f"{self.name}({', '.join(self.params)})"


@dataclass(frozen=True)
class Module:
    """An SQL module, as its file declares it."""

    name: str
    description: str
    uses: tuple[str, ...]
    definitions: tuple[Definition, ...]
    sql: str = ""
    built_in: bool = True
    create: Create | None = None
    """What makes a computed table of this name; None for a module of SQL."""
    tables: tuple[str, ...] = ()
    """Stored tables that a computed one reads."""

    @cached_property
    def parts(self) -> tuple[ModulePart, ...]:
        """What an engine creates at once: each view and macro of a built-in module of SQL, other modules as a whole."""
        if self.create or not self.built_in:
            return (ModulePart(self, self.name, tuple(d.name for d in self.definitions), self.sql),)
        statements = _CREATE.split(_REMARK.sub("", self.sql))[1:]
        return tuple(
            ModulePart(self, d.name, (d.name,), sql) for d, sql in zip(self.definitions, statements, strict=True)
        )


@dataclass(frozen=True, eq=False)
class ModulePart:
    """A part of a module that an engine creates at once."""

    module: Module
    name: str
    """The name of the view or macro of a built-in module, else of the module."""
    defines: tuple[str, ...]
    """Its declared views and macros. A user's module need not declare any."""
    sql: str

    @cached_property
    def words(self) -> frozenset[str]:
        """What it may read, by name; a computed table's SQL is in Python, so that is all of what its module uses."""
        if self.module.create:
            used = (d.name for name in self.module.uses for d in built_in()[name].definitions)
            return frozenset((*self.module.tables, *used))
        return words(self.sql)


def parse_module(name: str, text: str, where: str, built_in: bool = True) -> Module:
    """A module from the text of its file; raises InputError for comment lines that are not of the form above."""
    prose: list[str] = []
    uses: tuple[str, ...] = ()
    found: list[Definition] = []
    for number, group in enumerate(_comments(text)):
        current = None
        for line in unwrap(group):
            if not line.startswith("@"):
                if current:
                    current.doc += "\n" + line
                elif not number:
                    prose.append(line)
            elif m := _USE.match(line):
                uses += names_of(m[1])
            elif m := _VIEW.match(line):
                found.append(current := Definition(m[1], None, m[2]))
            elif m := _MACRO.match(line):
                found.append(current := Definition(m[1], names_of(m[2]), m[3]))
            elif current and (m := _SPREAD.match(line)):
                current.columns += (ResultColumn("*", "", m[1]),)
            elif current and (m := _COLUMNS.match(line)) and STANDARD.keys() >= set(names_of(m[1])):
                current.columns += tuple(STANDARD[name] for name in names_of(m[1]))
            elif current and (m := _COLUMN.match(line)) and m[2] in MODULE_UNITS:
                current.columns += (ResultColumn(*m.groups()),)
            else:
                raise InputError(f"{where}: not a well-formed comment line of a module: {line}")
    return Module(name, "\n".join(prose).strip(), uses, tuple(found), text, built_in)


def _comments(text: str) -> Iterator[list[str]]:
    """The comment lines that begin a file, and those whose first is a tag; without the dashes."""
    group: list[str] = []
    first = True
    for line in [*text.splitlines(), ""]:
        if line.startswith("--"):
            group.append(line[2:].removeprefix(" ").rstrip())
            continue
        if group and (first or group[0].startswith("@")):
            yield group
        first = first and not line and not group
        group = []


def modules(names: Iterable[str], folders: Iterable[Path] = ()) -> dict[str, Module]:
    """The named modules and those that they use, by name, each behind what it uses.

    Raises InputError for a module that does not exist or that uses itself.
    """
    places = [f / MODULES for f in (*folders, BUILT_IN)]
    found: dict[str, Module] = {}

    def add(name: str, users: tuple[str, ...] = ()) -> None:
        if name in found:
            return
        if name in users:
            raise InputError(f"@use {name}: the module uses itself ({' > '.join((*users, name))})")
        module = _find(name, places)
        for used in module.uses:
            add(used, (*users, name))
        found[name] = module

    for name in names:
        add(name)
    return found


def parts(found: Mapping[str, Module], sql: str) -> list[ModulePart]:
    """The parts of modules that SQL reads, each behind what it reads itself; of a user's module, the whole.

    What it reads is one of its words, be it a text that a macro is given as the name of a table. That a word may mean
    something else costs the time to make a view; to read the SQL as DuckDB does would cost more.
    """
    every = [part for module in found.values() for part in module.parts]
    home = {name: part for part in every for name in part.defines}
    read = {part for part in every if not part.module.built_in}
    todo = [words(sql), *(part.words for part in read)]
    while todo:
        new = {home[word] for word in todo.pop() & home.keys()} - read
        read |= new
        todo += [part.words for part in new]
    return [part for part in every if part in read]


def words(sql: str) -> frozenset[str]:
    """The words of SQL in small letters."""
    return frozenset(_WORD.findall(sql.lower()))


def _find(name: str, places: list[Path]) -> Module:
    named = places if re.fullmatch(r"[\w-]+", name) else ()
    path = next((p for place in named if (p := place / f"{name}.sql").is_file()), None)
    if path is not None and path.parent != BUILT_IN / MODULES:
        try:
            text = read_bounded(path, LONGEST).decode().replace("\r\n", "\n")
            return parse_module(name, text, str(path), built_in=False)
        except (OSError, UnicodeDecodeError) as e:
            raise unreadable(path, e) from e
    known = built_in()
    if name in TABLES:
        raise InputError(f"@use {name}: {name} is a stored table, which needs no @use")
    if name not in known:
        near = difflib.get_close_matches(name, known, 3)
        instead = f"; did you mean {', '.join(near)}?" if near else " (`analyze tables --modules` lists them)"
        raise InputError(f"@use {name}: there is no such module in {', '.join(map(str, places))}{instead}")
    return known[name]


@cache
def built_in() -> dict[str, Module]:
    """The package's own modules by name, computed tables among them."""
    found = {p.stem: parse_module(p.stem, p.read_text("utf-8"), str(p)) for p in (BUILT_IN / MODULES).glob("*.sql")}
    for table in COMPUTED:
        head = "\n".join(f"-- {line}".rstrip() for line in table.header.splitlines())
        declared = parse_module(table.name, head, f"computed table {table.name}")
        found[table.name] = replace(declared, sql="", create=table.create, tables=table.tables)
    return dict(sorted(found.items()))


@cache
def home() -> dict[str, tuple[Module, Definition]]:
    """Each view, macro and computed table by its name in small letters, with the built-in module that defines it."""
    return {d.name.lower(): (module, d) for module in built_in().values() for d in module.definitions}


def defining(names: Iterable[str]) -> list[str]:
    """The built-in modules that define any of the names (of tables and functions, in small letters)."""
    known = home()
    return sorted({known[n][0].name for n in names if n in known})


def check_declared(names: Iterable[str], uses: Iterable[str], what: str) -> None:
    """Raise InputError if SQL reads a built-in module that it does not declare: it would exist only by chance."""
    if missing := [name for name in defining(names) if name not in uses]:
        raise InputError(f"{what}: it reads what the module {missing[0]} defines, so it needs -- @use {missing[0]}")


def columns_of(definition: Definition) -> Iterator[ResultColumn]:
    """Yield the documented columns, with those that `* of TABLE` stands for; `* of t` stays if `t` is a parameter."""
    from analyze.stored_tables import TABLES

    for column in definition.columns:
        if column.name != "*" or column.doc in (definition.params or ()):
            yield column
        elif column.doc in TABLES:
            for c in TABLES[column.doc].columns:
                yield ResultColumn(c.name, c.unit, c.doc)
            yield STANDARD["run_group"]
        else:
            yield from columns_of(home()[column.doc][1])
