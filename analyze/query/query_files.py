"""Query files: GROUP/NAME.sql, documented by their own comment lines.

A file begins with comment lines, the rest is one SELECT::

    -- Which kernels take the time?                                  the question: the first line
    -- Any prose that follows is the description.
    -- @param group name|family = name    What a row is.             choices: {group} in the SQL is replaced
    -- @param limit_us number[0..1e9] = 30   A threshold.            others: $limit_us is bound as a value
    -- @column total_ns ns                Sum of durations.          every column of the result, with its unit
    -- @main name, total_ns               Columns that a table shows first if not all fit.
    -- @order total_ns DESC, name
    -- @use arithmetic, gpu_gaps          SQL modules (`analyze.query.modules`) that the SELECT itself reads.
    -- @answer in_steps breakdown window=step   The answer of another built-in query, read as a table in_steps.
    -- @by device, stream                Columns of GPU work that `--by` and `--where` may name: all rows are of it.
    -- @needs kernels that NCCL ran       What a recording must have; shown if there are no rows.
    -- @rows if NCCL was slow             Besides @needs, what must be true; without it the answer has no rows.
    -- @pass gpu                          The pass to query if there are several (default: torch); `all`: each. `gpu`
    --                                    for questions about time.
    -- @full launch calls                 What a GPU-only block lacks, if the answer has times and is of the full block.
    -- @disturbed waits                   What in its answer the profiler makes longer; a note says so where the
    --                                    profiler's share is not known (`analyze.query.profiler_share`).
    -- @plot bars x=total_ns y=name       Its default figure (analyze.plots.declared).
    -- @drill name launch name={name}     The query that a click on a cell of the column opens in `analyze serve`.

The comment lines come in this order. CTEs have plain names, of no table or view; in modules they begin with `_`,
so that neither hides the other's.

The SELECT reads the tables of `analyze.stored_tables` and what its modules define. Every table has one more column,
`run_group`: NULL, or with `--by` the number of the group of runs that the row belongs to. A query groups by it and
returns it first; `@column` does not name it.

`@drill COLUMN QUERY key=value ...`: `{column}` in a value is replaced by the value in the row. A key is a parameter of
QUERY, else a column of its answer: only rows with that value are shown.

Parameters are choices, `text`, `regex` (for regexp_matches), `number` or `int`. A number has an inclusive range:
`int[1..10000]`, or `number[0..]` without an upper limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analyze.errors import InputError, unreadable
from analyze.query.literals import text_literal
from analyze.query.selection import GPU_COLUMNS, RUN_COLUMNS, TIMING
from schemas.files import is_dir, read_bounded

BUILT_IN = Path(__file__).parents[1] / "queries"
MODULES = "modules"
LONGEST = 4 << 20
"""Bytes of a query file or a module."""

PASSES = (*TIMING, "all")

_TAG = re.compile(r"^@(param|column|main|order|use|by|answer|needs|rows|pass|full|disturbed|plot|drill)\s+(.*)$")
_PARAM = re.compile(r"^(\w+)\s+(\S+)\s+=\s+(?:'([^']*)'|(\S+))\s*(.*)$")
_NUMBER = re.compile(r"^(number|int)(?:\[(.*)\])?$")
_ANSWER = re.compile(r"(\w+)\s+([\w-]+)((?:\s+\w+=\S+)*)")
_DRILL = re.compile(r"(\{?\w+\}?)\s+([\w-]+)((?:\s+\w+=\S+)+)")
_COLUMN = re.compile(r"^(\{?\w+\}?)\s+(\S+)\s*(.*)$")

UNITS = {
    "text",
    "id",
    "count",
    "ns",
    "s",
    "%",
    "B",
    "B/s",
    "GB/s",
    "FLOP",
    "FLOP/s",
    "FLOP/B",
    "images/s",
    "MHz",
    "W",
    "°C",
    "x",
    "index",
    "number",
    "bool",
    "time",
}
"""Units that a @column may have; `text` and `id` are not numbers, `x` is a ratio."""


_MOST = 2.0**53
"""Above it a number that is read as DOUBLE is no longer exact; no count or time comes near it."""


def _number(text: str) -> int | float | None:
    """The finite number that a text is; None for others."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if -math.inf < value < math.inf else None
    return None


@dataclass(frozen=True)
class Param:
    """A parameter of a query: its choices, or the type and the range of its value, and its default."""

    name: str
    type: str
    """choice, text, regex, number or int."""
    choices: tuple[str, ...]
    default: str
    doc: str
    low: float = -_MOST
    high: float = _MOST

    @property
    def takes(self) -> str:
        """What values it takes, in words."""
        low = "" if self.low == -_MOST else f"{self.low:g}"
        high = "" if self.high == _MOST else f"{self.high:g}"
        return "|".join(self.choices) or self.type + (f" {low}..{high}" if low or high else "")

    def parse(self, text: str, query: str) -> str | float | int:
        """The value that a user's text means; raises InputError."""
        if self.choices:
            if text not in self.choices:
                raise InputError(f"query {query}: {self.name} must be one of {', '.join(self.choices)}, not {text!r}")
            return text
        if self.type in ("number", "int"):
            value = _number(text)
            if value is None or (self.type == "int" and not isinstance(value, int)):
                kind = "a whole number" if self.type == "int" else "a number"
                raise InputError(f"query {query}: {self.name} must be {kind}, not {text!r}")
            if not self.low <= value <= self.high:
                low, high = (f"{int(v)}" if v == int(v) else f"{v:g}" for v in (self.low, self.high))
                raise InputError(f"query {query}: {self.name} must be from {low} to {high}, not {text}")
            return value
        if text != self.default:
            from analyze.query import text_checks

            check = text_checks.check_regex if self.type == "regex" else text_checks.check_text
            check(text, f"query {query}: {self.name}")
        return text


@dataclass(frozen=True)
class ResultColumn:
    """A documented column of a query's result."""

    name: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Drill:
    """The question that goes deeper than a cell does."""

    column: str
    query: str
    values: tuple[tuple[str, str], ...]
    """Keys and values, as the header has them."""


@dataclass(frozen=True)
class OtherAnswer:
    """The answer of another built-in query that a query reads under a name."""

    name: str
    query: str
    params: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Query:
    """A question, as its file declares it."""

    name: str
    group: str
    path: Path
    question: str
    description: str
    params: tuple[Param, ...]
    columns: tuple[ResultColumn, ...]
    order: str
    sql: str
    uses: tuple[str, ...] = ()
    gpu_columns: tuple[str, ...] = ()
    """Columns of GPU work that `--by` and `--where` may name."""
    needs: str = ""
    rows_if: str = ""
    """What must be true besides `needs`; empty if a recording with what it needs has rows."""
    prefer: str | None = None
    """The profiler whose pass answers it best, or all."""
    disturbed: str = ""
    """What in its answer the profiler makes longer; empty for nothing."""
    full: str = ""
    """What it needs that only the full block has; empty if its times may be of the GPU-only block, or it has none."""
    main: tuple[str, ...] = ()
    """Names, as documented, of the columns that a table shows first where not all have room; empty for all."""
    plot: str = ""
    """The figure, as the header declares it; empty if it declares none."""
    drills: tuple[Drill, ...] = ()
    answers: tuple[OtherAnswer, ...] = ()

    @property
    def defaults(self) -> str:
        """Its parameters with their defaults, in words."""
        return ", ".join(f"{p.name}={p.default}" for p in self.params)

    def mixes(self, by: Sequence[str], runs: int, columns: Iterable[str]) -> bool:
        """Whether its rows, of these columns, are of several runs together and do not say so."""
        return not by and runs > 1 and self.group != "compare" and "run_id" not in columns

    def bind(self, values: dict[str, str]) -> tuple[str, dict[str, str | float | int], dict[str, str]]:
        """SQL with the choices filled in, the values to bind, and the choices; raises InputError."""
        known = {p.name: p for p in self.params}
        for name in values:
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise InputError(f"query {self.name} has no parameter {name!r} ({has})")
        parsed = {p.name: p.parse(values.get(p.name, p.default), self.name) for p in self.params}
        choices = {n: str(v) for n, v in parsed.items() if known[n].choices}
        sql = self._with_answers(self.fill(self.sql, choices))
        return sql, {n: v for n, v in parsed.items() if not known[n].choices}, choices

    def _with_answers(self, sql: str) -> str:
        """SQL after CTEs with the answers of other queries."""
        ctes = [f"{a.name} AS (\n{find(a.query).filled(dict(a.params))}\n)" for a in self.answers]
        if not ctes:
            return sql
        own = sql.removeprefix("WITH ")
        return f"WITH {', '.join(ctes)}{',' if own != sql else ''}\n{own}"

    def filled(self, values: Mapping[str, str]) -> str:
        """SQL with the values of its parameters filled in; raises InputError."""
        sql, bound, _ = self.bind(dict(values))
        for name, value in bound.items():
            literal = str(value) if isinstance(value, int | float) else text_literal(value)
            sql = re.sub(rf"\${name}\b", literal.replace("\\", r"\\"), sql)
        return sql

    def own_by(self, by: Sequence[str], params: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """`by` without what the query itself tells apart, a choice of its parameter `per`; and params with that.

        Columns of runs are none of them. Raises InputError for two.
        """
        per = next((p.choices for p in self.params if p.name == "per"), ())
        own = [b for b in by if b in per and b not in RUN_COLUMNS]
        groups = next((p.choices for p in self.params if p.name == "group"), ())
        for name in by:
            if name in groups and name not in (*own, *RUN_COLUMNS, *self.gpu_columns):
                raise InputError(f"--by {name}: groups runs and ranks; what a row is says --group {name}")
        if len(own) > 1:
            raise InputError(f"--by {','.join(own)}: {self.name} tells one of them apart")
        return tuple(b for b in by if b not in own), {**params, **({"per": own[0]} if own else {})}

    def fill(self, text: str, choices: dict[str, str]) -> str:
        """Text with {param} replaced by the choice made."""
        for name, value in choices.items():
            text = text.replace("{" + name + "}", value)
        return text

    def used(self, choices: dict[str, str]) -> tuple[str, ...]:
        """The modules that it and the queries whose answers it reads use with these choices."""
        others = (find(a.query) for a in self.answers)
        used = (name for query in others for name in query.used(query.bind({})[2]))
        return tuple(dict.fromkeys([*(self.fill(name, choices) for name in self.uses), *used]))

    def result_columns(self, choices: dict[str, str]) -> tuple[ResultColumn, ...]:
        """The documented columns under their names for these choices."""
        return tuple(ResultColumn(self.fill(c.name, choices), c.unit, c.doc) for c in self.columns)


def parse(path: Path, columns: Iterable[ResultColumn] = (), order: str = "") -> Query:
    """Read a query file; raises InputError naming the file and line if its comment lines are not of the form above.

    `columns` and `order` are those of files that need no @column and @order lines.
    """
    try:
        lines = read_bounded(path, LONGEST).decode().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise unreadable(path, e) from e
    head = []
    for line in lines:
        if not line.startswith("--"):
            break
        head.append(line[2:].removeprefix(" ").rstrip())
    prose, params, columns, needs, plot = [], [], list(columns), "", ""
    prefer, full, disturbed, rows_if = None, "", "", ""
    uses: tuple[str, ...] = ()
    gpu_columns: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    drills: tuple[Drill, ...] = ()
    answers: tuple[OtherAnswer, ...] = ()
    for number, line in enumerate(unwrap(head), 1):
        tag = _TAG.match(line)
        if not tag:
            prose.append(line)
        elif tag.group(1) == "order":
            order = tag.group(2)
        elif tag.group(1) == "needs":
            needs = tag.group(2)
        elif tag.group(1) == "rows" and tag.group(2).startswith("if "):
            rows_if = tag.group(2).removeprefix("if ")
        elif tag.group(1) == "plot":
            plot = tag.group(2)
        elif tag.group(1) == "full":
            full = tag.group(2)
        elif tag.group(1) == "disturbed":
            disturbed = tag.group(2)
        elif tag.group(1) == "main":
            main += names_of(tag.group(2))
        elif tag.group(1) == "pass" and tag.group(2) in PASSES:
            prefer = tag.group(2)
        elif tag.group(1) == "use":
            uses += names_of(tag.group(2))
        elif tag.group(1) == "answer" and (m := _ANSWER.fullmatch(tag.group(2))):
            answers += (OtherAnswer(m[1], m[2], _pairs(m[3])),)
        elif tag.group(1) == "by" and set(names_of(tag.group(2))) <= GPU_COLUMNS.keys():
            gpu_columns = names_of(tag.group(2))
        elif tag.group(1) == "drill" and (m := _DRILL.fullmatch(tag.group(2))):
            drills += (Drill(m[1], m[2], _pairs(m[3])),)
        elif tag.group(1) == "param" and (m := _PARAM.match(tag.group(2))):
            params.append(_param(m, f"{path}: comment {number}: {line}"))
        elif tag.group(1) == "column" and (m := _COLUMN.match(tag.group(2))) and m.group(2) in UNITS:
            columns.append(ResultColumn(*m.groups()))
        else:
            raise InputError(f"{path}: comment {number}: not a well-formed @{tag.group(1)} line: {line}")
    if unknown := set(main) - {c.name for c in columns}:
        raise InputError(f"{path}: @main {min(unknown)}: there is no such @column")
    question = prose[0] if prose else ""
    sql = "\n".join(lines[len(head) :]).strip().rstrip(";")
    if not question or not columns or not sql:
        raise InputError(f"{path}: a query file needs a question, @column lines and a SELECT")
    for name in main:
        if name not in {c.name for c in columns}:
            raise InputError(f"{path}: @main {name}: there is no @column of that name")
    return Query(
        name=path.stem,
        group=path.parent.name,
        path=path,
        question=question,
        description="\n".join(prose[1:]).strip(),
        params=tuple(params),
        columns=tuple(columns),
        order=order,
        sql=sql,
        uses=uses,
        gpu_columns=gpu_columns,
        needs=needs,
        rows_if=rows_if,
        prefer=prefer,
        full=full,
        disturbed=disturbed,
        main=main,
        plot=plot,
        drills=drills,
        answers=answers,
    )


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Keys and values of `key=value ...`."""
    return tuple((key, value) for key, _, value in (word.partition("=") for word in text.split()))


def _param(match: re.Match[str], where: str) -> Param:
    name, kind, quoted, plain, doc = match.groups()
    default = quoted if quoted is not None else plain
    choices = tuple(kind.split("|")) if "|" in kind else ()
    if choices or kind in ("text", "regex"):
        return Param(name, "choice" if choices else kind, choices, default, doc)
    number = _NUMBER.match(kind)
    least, dots, most = ((number and number[2]) or "").partition("..")
    if number and (dots or number[2] is None):
        low = _number(least) if least else -_MOST
        high = _number(most) if most else _MOST
        if low is not None and high is not None:
            return Param(name, number[1], (), default, doc, low, high)
    raise InputError(f"{where}: a parameter is a|choice, text, regex, number[LOW..HIGH] or int[LOW..HIGH]")


def names_of(text: str) -> tuple[str, ...]:
    """The names between the commas of a tag."""
    return tuple(n.strip() for n in text.split(",") if n.strip())


def unwrap(lines: Iterable[str]) -> list[str]:
    """Join the continuation lines (indented) of a tag."""
    joined: list[str] = []
    for line in lines:
        if line.startswith("  ") and joined and joined[-1].startswith("@"):
            joined[-1] += " " + line.strip()
        else:
            joined.append(line)
    return joined


def catalog(folders: Iterable[Path] = ()) -> dict[str, Query]:
    """Built-in queries and those of further folders by name; a user's query hides a built-in one of the same name."""
    found = {name: _built_in(path) for name, path in _built_in_paths().items()}
    for folder in _there(folders):
        found |= {name: parse(path) for name, path in _paths(folder).items()}
    return found


def _paths(folder: Path) -> dict[str, Path]:
    """The query files of a folder by the names of their queries."""
    return {path.stem: path for path in sorted(folder.rglob("*.sql")) if path.parent.name != MODULES}


@cache
def _built_in_paths() -> dict[str, Path]:
    return _paths(BUILT_IN)


_built_in = cache(parse)
"""Read once: a report asks for a hundred."""


def _there(folders: Iterable[Path]) -> list[Path]:
    found = list(folders)
    for folder in found:
        try:
            there = is_dir(folder)
        except (OSError, ValueError) as e:
            raise unreadable(folder, e) from e
        if not there:
            raise InputError(f"{folder}: no such folder of query files")
    return found


def find(name: str, folders: Iterable[Path] = ()) -> Query:
    """The query of a name; raises InputError with the nearest names, if any is near."""
    folders = _there(folders)
    for folder in reversed(folders):
        if path := _paths(folder).get(name):
            return parse(path)
    if path := _built_in_paths().get(name):
        return _built_in(path)
    import difflib

    near = difflib.get_close_matches(name, list(catalog(folders)), 3)
    instead = (
        f"; did you mean {', '.join(near)}? (`analyze query` lists all)" if near else " (`analyze query` lists them)"
    )
    raise InputError(f"there is no query {name!r}{instead}")
