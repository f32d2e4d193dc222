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

import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from analyze.errors import InputError, unreadable
from analyze.query.query_declaration import (
    MOST,
    UNITS,
    Drill,
    OtherAnswer,
    Param,
    Query,
    ResultColumn,
    finite_number,
)
from analyze.query.selection import GPU_COLUMNS, TIMING
from schemas.files import is_dir, read_bounded

BUILT_IN = Path(__file__).parents[1] / "queries"
MODULES = "modules"
LONGEST = 4 << 20
"""Bytes of a query file or a module."""

PASSES = (*TIMING, "all")

_TAG = re.compile(r"^@(\w+)\s+(.*)$")
_PARAM = re.compile(r"^(\w+)\s+(\S+)\s+=\s+(?:'([^']*)'|(\S+))\s*(.*)$")
_NUMBER = re.compile(r"^(number|int)(?:\[(.*)\])?$")
_ANSWER = re.compile(r"(\w+)\s+([\w-]+)((?:\s+\w+=\S+)*)")
_DRILL = re.compile(r"(\{?\w+\}?)\s+([\w-]+)((?:\s+\w+=\S+)+)")
_COLUMN = re.compile(r"^(\{?\w+\}?)\s+(\S+)\s*(.*)$")


def parse(path: Path, columns: Iterable[ResultColumn] = (), order: str = "") -> Query:
    """Read a query file. Raises InputError that names the file and the comment line if a line is not well-formed.

    `columns` and `order` replace @column and @order lines.
    """
    try:
        lines = read_bounded(path, LONGEST).decode().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise unreadable(path, e) from e
    head = [line[2:].removeprefix(" ").rstrip() for line in takewhile(lambda line: line.startswith("--"), lines)]
    sql = "\n".join(lines[len(head) :]).strip().rstrip(";")
    prose: list[str] = []
    tags: dict[str, list[Any]] = {name: [] for name in _TAGS}
    for number, line in enumerate(unwrap(head), 1):
        if (tag := _TAG.match(line)) and tag[1] in _TAGS:
            try:
                tags[tag[1]].append(_TAGS[tag[1]](tag[2]))
            except ValueError as e:
                why = str(e) or f"not a well-formed @{tag[1]} line"
                raise InputError(f"{path}: comment {number}: {why}: {line}") from e
        else:
            prose.append(line)
    columns = (*columns, *tags["column"])
    if not prose or not prose[0] or not columns or not sql:
        raise InputError(f"{path}: a query file needs a question, @column lines and a SELECT")
    main = tuple(chain(*tags["main"]))
    if unknown := set(main) - {c.name for c in columns}:
        raise InputError(f"{path}: @main {min(unknown)}: there is no such @column")
    last = {name: values[-1] for name, values in tags.items() if values}
    return Query(
        name=path.stem,
        group=path.parent.name,
        path=path,
        question=prose[0],
        description="\n".join(prose[1:]).strip(),
        params=tuple(tags["param"]),
        columns=columns,
        order=last.get("order", order),
        sql=sql,
        uses=tuple(chain(*tags["use"])),
        gpu_columns=last.get("by", ()),
        needs=last.get("needs", ""),
        rows_if=last.get("rows", ""),
        prefer=last.get("pass"),
        full=last.get("full", ""),
        disturbed=last.get("disturbed", ""),
        main=main,
        plot=last.get("plot", ""),
        drills=tuple(tags["drill"]),
        answers=tuple(tags["answer"]),
    )


def _groups(found: re.Match[str] | None) -> tuple[str, ...]:
    """Return the groups of a match. Raises ValueError if there is none."""
    if found:
        return found.groups()
    raise ValueError


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Return keys and values of `key=value ...`."""
    return tuple((key, value) for key, _, value in (word.partition("=") for word in text.split()))


def _param(text: str) -> Param:
    name, kind, quoted, plain, doc = _groups(_PARAM.fullmatch(text))
    default = quoted if quoted is not None else plain
    choices = tuple(kind.split("|")) if "|" in kind else ()
    if choices or kind in ("text", "regex"):
        return Param(name, "choice" if choices else kind, choices, default, doc)
    number = _NUMBER.match(kind)
    least, dots, most = ((number and number[2]) or "").partition("..")
    if number and (dots or number[2] is None):
        low = finite_number(least) if least else -MOST
        high = finite_number(most) if most else MOST
        if low is not None and high is not None:
            return Param(name, number[1], (), default, doc, low, high)
    raise ValueError("a parameter is a|choice, text, regex, number[LOW..HIGH] or int[LOW..HIGH]")


def _column(text: str) -> ResultColumn:
    name, unit, doc = _groups(_COLUMN.fullmatch(text))
    return ResultColumn(name, _one_of(unit, UNITS), doc)


def _one_of(text: str, known: Collection[str]) -> str:
    if text not in known:
        raise ValueError
    return text


def _answer(text: str) -> OtherAnswer:
    name, query, params = _groups(_ANSWER.fullmatch(text))
    return OtherAnswer(name, find(query), _pairs(params))


def _drill(text: str) -> Drill:
    column, query, params = _groups(_DRILL.fullmatch(text))
    return Drill(column, query, _pairs(params))


def names_of(text: str) -> tuple[str, ...]:
    """Return the names between commas."""
    return tuple(n.strip() for n in text.split(",") if n.strip())


_TAGS: dict[str, Callable[[str], Any]] = {
    "param": _param,
    "column": _column,
    "main": names_of,
    "order": str,
    "use": names_of,
    "by": lambda text: tuple(_one_of(name, GPU_COLUMNS) for name in names_of(text)),
    "answer": _answer,
    "needs": str,
    "rows": lambda text: _groups(re.fullmatch("if (.*)", text))[0],
    "pass": lambda text: _one_of(text, PASSES),
    "full": str,
    "disturbed": str,
    "plot": str,
    "drill": _drill,
}
"""What reads the text behind each tag. Raises ValueError if it is not well-formed."""


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
    """Return all queries by name. A query of a folder replaces a built-in one of the same name."""
    found = {name: _built_in(path) for name, path in _built_in_paths().items()}
    for folder in _there(folders):
        found |= {name: parse(path) for name, path in _paths(folder).items()}
    return found


def _paths(folder: Path) -> dict[str, Path]:
    """Return the query files of a folder by the names of their queries."""
    return {path.stem: path for path in sorted(folder.rglob("*.sql")) if path.parent.name != MODULES}


@cache
def _built_in_paths() -> dict[str, Path]:
    return _paths(BUILT_IN)


_built_in = cache(parse)
"""Cached: a report answers a hundred queries."""


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
    """Return the query of a name. Raises InputError that suggests similar names."""
    folders = _there(folders)
    for folder in reversed(folders):
        if path := _paths(folder).get(name):
            return parse(path)
    if path := _built_in_paths().get(name):
        return _built_in(path)
    import difflib

    known = [*_built_in_paths(), *(name for folder in folders for name in _paths(folder))]
    near = difflib.get_close_matches(name, dict.fromkeys(known), 3)
    instead = (
        f"; did you mean {', '.join(near)}? (`analyze query` lists all)" if near else " (`analyze query` lists them)"
    )
    raise InputError(f"there is no query {name!r}{instead}")
