"""SQL that a user wrote, parsed before it runs: one expression over columns, or one SELECT over the tables, no more.

DuckDB's own parser says what a text is (`json_serialize_sql`), and only what is known to do nothing but compute is let
through: in DuckDB 2 a SELECT can hold a COPY that writes a file, and a table function can read one.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import duckdb

from analyze.errors import InputError

_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
"""Forms of a query; others write (COPY, INSERT, UPDATE, DELETE, MERGE)."""

_SOURCES = {
    "BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "PIVOT", "SHOW_REF",
}  # fmt: skip
"""What may stand behind FROM."""

_TABLE_FUNCTIONS = {"unnest", "range", "generate_series", "repeat", "json_each", "json_tree"}
"""Of DuckDB's own; others read files or memory, or run text."""

_NO_FUNCTIONS = {
    "currval", "current_setting", "getenv", "getvariable", "json_execute_serialized_sql", "json_serialize_plan",
    "nextval", "pg_sleep", "query", "query_table", "setseed", "setval", "sleep_ms", "write_log",
}  # fmt: skip
"""Functions with effects, or that tell of the machine instead of the recording."""

_CREATE = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?"
    r"(?:VIEW\s+(?P<view>\w+)|(?:MACRO|FUNCTION)\s+(?P<macro>\w+)\s*\([^()]*\))\s+AS\s+(?P<table>TABLE\s)?(?P<body>.*)",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_EXPLAIN = re.compile(r"EXPLAIN\s+(?:ANALYZE\s+)?", re.IGNORECASE)


def check_expression(connection: duckdb.DuckDBPyConnection, text: str, what: str) -> None:
    """Raise InputError unless the text is one expression over columns, without a subquery.

    It may then be used between parentheses on lines of their own. `what` names it in the error.
    """
    [statement, *more] = _parse(connection, f"SELECT\n{text}\n", what)
    node = statement["node"]
    items = node.get("select_list", [])
    alone = not more and node["type"] == "SELECT_NODE" and len(items) == 1 and not items[0]["alias"]
    extra = ("modifiers", "where_clause", "group_expressions", "having", "sample", "qualify")
    plain = alone and node["from_table"]["type"] == "EMPTY" and not any(node[e] for e in extra)
    if not plain or node["cte_map"]["map"] or items[0]["class"] == "STAR":
        raise InputError(f"{what}: must be one SQL expression over the columns")
    for item in _objects(items):
        if "cte_map" in item or item.get("class") == "SUBQUERY":
            raise InputError(f"{what}: must be an expression over the columns, without a SELECT of its own")
        _check_function(item, what)


def check_select(connection: duckdb.DuckDBPyConnection, text: str, what: str, known: Collection[str] = ()) -> None:
    """Raise InputError unless the text is one SELECT (or EXPLAIN of one) that reads the connection's tables.

    `known`: some that are there, in small letters. Of others it is asked which there are: a new DuckDB takes 9 ms.
    """
    statements = _parse(connection, _without_explain(text), what)
    if len(statements) != 1:
        raise InputError(f"{what}: only one SELECT is allowed; the store is opened for reading")
    _check_tree(connection, statements, what, known)


def check_block(connection: duckdb.DuckDBPyConnection, text: str, what: str, known: Collection[str] = ()) -> None:
    """Raise InputError unless the text is macros and views, each over one SELECT or one expression.

    A macro may look up a table that it is given by name (`query_table`); what it is given is checked where it is used.
    `known`: as for `check_select`.
    """
    tables, functions = {*known}, {"query_table"}
    for create, body in _created(text, what):
        _check_tree(connection, _parse(connection, body, what), what, tables, functions)
        if create["view"]:
            tables.add(create["view"].lower())
        else:
            functions.add(create["macro"].lower())


def _created(text: str, what: str) -> Iterator[tuple[re.Match[str], str]]:
    """The CREATE statements of a block, each with its SELECT: of a macro that is an expression, one of it."""
    try:
        statements = [s.query for s in duckdb.extract_statements(text)]
    except (duckdb.Error, UnicodeError) as e:
        raise InputError(f"{what}: {sentence(e)}") from e
    for statement in statements:
        start = _COMMENT.match(statement)
        create = _CREATE.fullmatch(statement, start.end() if start else 0)
        if not create:
            raise InputError(f"{what}: a block holds CREATE VIEW and CREATE MACRO, nothing else")
        yield create, create["body"] if create["view"] or create["table"] else f"SELECT\n{create['body']}"


def names_in(connection: duckdb.DuckDBPyConnection, text: str, what: str) -> set[str]:
    """Tables and functions that a SELECT names, in small letters; not what only its texts and comments hold.

    A text that a table function is given may be the name of a table, and counts. Raises InputError as `check_select`.
    """
    return _named(_parse(connection, _without_explain(text), what))


def names_in_block(connection: duckdb.DuckDBPyConnection, text: str, what: str) -> set[str]:
    """As `names_in`, for what the views and macros of a block name, without themselves."""
    found: set[str] = set()
    own: set[str] = set()
    for create, body in _created(text, what):
        found |= _named(_parse(connection, body, what))
        own.add((create["view"] or create["macro"]).lower())
    return found - own


def _named(tree: object) -> set[str]:
    """The names in a tree, without those of its own CTEs where these can be seen."""
    found: set[str] = set()
    stack: list[tuple[object, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, own = stack.pop()
        if isinstance(node, list):
            stack += [(part, own) for part in node]
        if not isinstance(node, dict):
            continue
        for entry in node.get("cte_map", {}).get("map", ()):
            seen = own | {entry["key"].lower()}
            recursive = entry["value"]["query_node"]["type"] == "RECURSIVE_CTE_NODE"
            stack.append((entry["value"], seen if recursive else own))
            own = seen
        if node.get("type") == "BASE_TABLE":
            found |= {p.lower() for p in node["qualified_name"]["path"][-1:]} - own
        elif node.get("type") == "TABLE_FUNCTION":
            found |= {text.lower() for text in _texts_given(node["function"])} - own
        if "function_name" in node:
            found.add(node["function_name"].lower())
        stack += [(part, own) for key, part in node.items() if key != "cte_map"]
    return found


def sentence(error: Exception) -> str:
    """What a DuckDB error says, on one line and without the excerpt of the SQL: that is not always the user's own."""
    if isinstance(error, UnicodeError) or "cannot encode str as UTF-8" in str(error):
        return "not valid UTF-8"
    lines = []
    for line in str(error).strip().splitlines():
        if line.startswith("LINE "):
            break
        if line.startswith("Possible solutions"):  # settings of DuckDB, which are not the user's
            lines.append("(what helps: more of it, $TRACEQUARRY_MEMORY; fewer threads, $TRACEQUARRY_THREADS; --where)")
            break
        if line.strip():
            lines.append(line.strip())
    return " ".join(lines) or type(error).__name__


def _without_explain(text: str) -> str:
    start = _COMMENT.match(text)
    explain = _EXPLAIN.match(text, start.end()) if start else None
    return text[explain.end() :] if explain else text


def _parse(connection: duckdb.DuckDBPyConnection, text: str, what: str) -> list[dict[str, Any]]:
    """The statements of a text as trees; raises InputError for what is no SELECT."""
    if "\0" in text:
        raise InputError(f"{what}: SQL cannot hold the character 0")
    try:
        # All rows are fetched: an open result would be in the way of the next one.
        [(parsed,)] = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [text]).fetchall()
        tree: dict[str, Any] = json.loads(parsed)
    except (duckdb.Error, UnicodeError) as e:
        raise InputError(f"{what}: {sentence(e)}") from e
    except RecursionError:
        raise InputError(f"{what}: the SQL is nested too deeply") from None
    if tree["error"]:
        if tree["error_type"] == "not implemented":
            raise InputError(f"{what}: only one SELECT is allowed; the store is opened for reading")
        raise InputError(f"{what}: {tree['error_type'].title()} Error: {' '.join(tree['error_message'].split())}")
    if not tree["statements"]:
        raise InputError(f"{what}: there is no SQL in it")
    return tree["statements"]


def _check_tree(
    connection: duckdb.DuckDBPyConnection,
    tree: object,
    what: str,
    known: Collection[str],
    functions: Collection[str] = (),
) -> None:
    objects = list(_objects(tree))
    own = {entry["key"].lower() for o in objects if "cte_map" in o for entry in o["cte_map"]["map"]}
    tables: set[str] | None = None
    macros: set[str] | None = None
    for o in objects:
        if "cte_map" in o:
            if o["type"] not in _NODES:
                raise InputError(f"{what}: only SELECT is allowed; the store is opened for reading")
        elif "sample" in o and "class" not in o:
            if o["type"] not in _SOURCES:
                raise InputError(f"{what}: FROM takes tables and SELECTs only")
            if o["type"] == "BASE_TABLE":
                if not _is_one_of(o, own, known):
                    tables = {*known, *_tables(connection)} if tables is None else tables
                    _check_table(o, what, own, tables)
            elif o["type"] == "TABLE_FUNCTION":
                name = o["function"].get("function_name", "").lower()
                if name not in _TABLE_FUNCTIONS and name not in functions:
                    macros = _macros(connection) if macros is None else macros
                    if name not in macros:
                        raise InputError(f"{what}: the table function {name!r} is not allowed: it could read a file")
                    _check_given(o["function"], what)
        else:
            _check_function(o, what, functions)


def _check_table(source: dict[str, Any], what: str, own: set[str], tables: Collection[str]) -> None:
    if _is_one_of(source, own, tables):
        return
    path = [p for p in source["qualified_name"]["path"] if p]
    if [p.lower() for p in path[:-1]] == ["information_schema"]:
        return
    near = difflib.get_close_matches(path[-1].lower() if path else "", [*own, *tables], 3)
    instead = f"; did you mean {', '.join(near)}?" if near else " (`analyze tables` lists them)"
    raise InputError(f"{what}: there is no table {'.'.join(path)!r}{instead}")


def _is_one_of(source: dict[str, Any], own: set[str], tables: Collection[str]) -> bool:
    *schema, name = [p.lower() for p in source["qualified_name"]["path"] if p] or [""]
    return name in own or (name in tables and schema in ([], ["main"], ["memory", "main"]))


def _check_given(function: dict[str, Any], what: str) -> None:
    """A text that a table macro is given may be taken for the name of a table, which is then not that of a file."""
    for text in _texts_given(function):
        if re.search(r"[^\w $]", text):
            raise InputError(f"{what}: {function['function_name']}({text!r}): there is no such table")


def _texts_given(function: dict[str, Any]) -> Iterator[str]:
    """The texts among a function's arguments."""
    for argument in function.get("arguments", []):
        literal = argument.get("expression", {}).get("literal") or {}
        if literal.get("kind") == "STRING":
            yield literal.get("text", "")


def _check_function(item: dict[str, Any], what: str, allowed: Collection[str] = ()) -> None:
    name = str(item.get("function_name", "")).lower()
    if name in _NO_FUNCTIONS and name not in allowed:
        raise InputError(f"{what}: the function {name!r} is not allowed")


def _objects(tree: object) -> Iterator[dict[str, Any]]:
    """All objects of a tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _tables(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Tables and views of the connection's own, in small letters."""
    rows = connection.execute(
        "SELECT lower(table_name) FROM duckdb_tables() WHERE NOT internal"
        " UNION SELECT lower(view_name) FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    return {name for (name,) in rows}


def _macros(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Table macros of the connection's own."""
    rows = connection.execute(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type = 'table_macro'"
        " AND NOT internal"
    ).fetchall()
    return {name for (name,) in rows}
