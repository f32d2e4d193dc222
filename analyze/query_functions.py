"""Queries as Python functions, so that an editor completes their names and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from analyze.info import Info
from analyze.notebook import Answer
from analyze.query.query_declaration import Param, Query, ResultColumn
from analyze.query.query_files import catalog, find
from analyze.query.result import row_result


class AnyTraces(Protocol):
    """The methods of `analyze.Traces` that are used here."""

    query_folders: tuple[Path, ...]

    @property
    def query(self) -> Callable[..., Answer]:
        """Answer a query by name."""

    def info(self) -> Info:
        """Return which queries can be answered."""


_COLUMNS = (
    ResultColumn("query", "text", "name of the query"),
    ResultColumn("group", "text", "what it is about"),
    ResultColumn("question", "text", "the question"),
    ResultColumn("parameters", "text", "its parameters with their defaults"),
    ResultColumn("lacking", "text", "what these recordings lack for it; empty if it can be answered"),
)
_PYTHON_TYPES: Mapping[str, Any] = {"int": int, "number": float, "text": str, "regex": str}


class Queries:
    """Every query as a function: `traces.queries.kernel_share(group="family")`, or `traces.queries["kernel-share"]`.

    Called, it lists them, with what these recordings lack. A function takes the query's parameters and the options of
    `AnyTraces.query` by name, and returns its `Answer`.
    """

    def __init__(self, traces: AnyTraces):
        self._traces = traces

    def __call__(self) -> Answer:
        """List the queries: a row for each, with its parameters and what these recordings lack for it."""
        info = self._traces.info()
        all_of_them = [
            *((query, "") for query in info.answered), *((q, needs.words) for q, needs in info.unanswered),
            *((query, f"rows only if {query.rows_if}") for query in info.empty),
        ]  # fmt: skip
        rows = [
            (q.name, q.group, q.question, q.defaults, lacking)
            for q, lacking in sorted(all_of_them, key=lambda found: (found[0].group, found[0].name))
        ]
        return Answer(row_result(_COLUMNS, rows, "queries"))

    def __getitem__(self, name: str) -> Callable[..., Answer]:
        return _function(find(name, self._traces.query_folders), self._traces)

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        # Editors look up many names that begin with an underscore; no query has one.
        if not name.startswith("_"):
            for query in self:
                if _identifier(query) == name:
                    return self[query]
        raise AttributeError(f"there is no query {name.replace('_', '-')!r}; `traces.queries()` lists all", name=name)

    def __iter__(self) -> Iterator[str]:
        return iter(catalog(self._traces.query_folders))

    def __dir__(self) -> list[str]:
        return [_identifier(name) for name in self]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        return repr(self())

    def _repr_html_(self) -> str:
        return self()._repr_html_()


def _identifier(name: str) -> str:
    return name.replace("-", "_")


def _function(query: Query, traces: AnyTraces) -> Callable[..., Answer]:
    """Return a query as a function. Its signature and docstring come from the header of the query file."""
    options = [p for p in inspect.signature(traces.query).parameters.values() if p.name not in ("name", "params")]
    # A parameter of the query hides an option of the same name.
    options = [p for p in options if p.name not in {own.name for own in query.params}]

    def ask(**given: Any) -> Answer:
        chosen = {option.name: given.pop(option.name) for option in options if option.name in given}
        return traces.query(query.name, params=given, **chosen)

    ask.__name__ = ask.__qualname__ = _identifier(query.name)
    ask.__doc__ = _docstring(query)
    parameters = [
        inspect.Parameter(
            p.name, inspect.Parameter.KEYWORD_ONLY, default=p.parse(p.default, query.name), annotation=_kind(p)
        )
        for p in query.params
    ]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options]
    ask.__signature__ = inspect.Signature(parameters, return_annotation="Answer")  # type: ignore[attr-defined]
    return ask


def _kind(param: Param) -> Any:
    return Literal[param.choices] if param.choices else _PYTHON_TYPES[param.type]


def _docstring(query: Query) -> str:
    """Return the documentation of a query in the NumPy format."""
    lines = [query.question, "", *([*query.description.splitlines(), ""] if query.description else [])]
    if query.needs:
        lines += [f"Needs {query.needs}.", ""]
    lines += ["Parameters", "----------"]
    for p in query.params:
        lines += [f"{p.name} : {p.takes}, default {p.default!r}", f"    {p.doc}"]
    lines += ["by, sort, limit, select, filter", "    As `AnyTraces.query` takes them.", ""]
    lines += ["Returns", "-------", "Answer", "    With the columns"]
    choices = {p.name: p.default for p in query.params if p.choices}
    lines += ["", *(f"    - {c.name} ({c.unit}): {c.doc}" for c in query.result_columns(choices))]
    return "\n".join(lines)
