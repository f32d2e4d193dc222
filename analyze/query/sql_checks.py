"""Check SQL that users wrote before it runs: one expression over columns, or one SELECT over the tables.

DuckDB's own parser decides. `duckdb.extract_statements` splits a text into statements and says the type of each;
`json_serialize_sql` gives the tree of a SELECT, which may hold only forms that compute. The functions here return the
statement that DuckDB parsed; callers execute that object and never the text.

This is one of two walls. The other is the connection, which cannot write (`analyze.query.databases`).
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Collection, Iterator
from typing import Any

import duckdb

from analyze.errors import InputError, MachineError, ReportedError
from schemas.errors import DISK_FULL

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

_SHOWN = {'"tables"', "__show_tables_expanded"}
"""What SHOW may list; SHOW of another name can be a setting, such as the paths of this machine."""

_CREATE = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?"
    r"(?:(?P<kind>VIEW|TABLE)\s+(?P<relation>\w+)|(?:MACRO|FUNCTION)\s+(?P<macro>\w+)\s*\((?P<parameters>[^()]*)\))"
    r"\s+AS\s+(?P<table>TABLE\s)?(?P<body>.*)",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_PARAMETER = re.compile(r"\s*[A-Za-z_]\w*\s*(?::=\s*(?:-?\d+(?:\.\d+)?|'[^']*'|NULL|true|false)\s*)?", re.IGNORECASE)


def check_expression(connection: duckdb.DuckDBPyConnection, text: str, what: str) -> set[str]:
    """Return the columns that an expression names, in small letters.

    Raises InputError unless the text is one expression over columns, without a subquery. It may then stand between
    parentheses on lines of its own, in a text for `one_select`. `what` names it in the error.
    """
    statements = _parse(connection, one_select(f"SELECT\n{text}\n", what), what)
    items = _expression(statements, what)
    columns = set()
    for item in _objects(items):
        if "cte_map" in item or item.get("class") == "SUBQUERY":
            raise InputError(f"{what}: must be an expression over the columns, without a SELECT of its own")
        _check_function(item, what)
        if item.get("class") == "COLUMN_REF":
            columns.add(item["column_names"][-1].lower())
    return columns


def _expression(statements: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """Return the select list of `SELECT expression`. Raises InputError for any other SELECT."""
    node = statements[0]["node"]
    items: list[dict[str, Any]] = node.get("select_list", [])
    alone = node["type"] == "SELECT_NODE" and len(items) == 1 and not items[0]["alias"]
    extra = ("modifiers", "where_clause", "group_expressions", "having", "sample", "qualify")
    plain = alone and node["from_table"]["type"] == "EMPTY" and not any(node[e] for e in extra)
    if not plain or node["cte_map"]["map"] or items[0]["class"] == "STAR":
        raise InputError(f"{what}: must be one SQL expression over the columns")
    return items


def one_select(text: str, what: str) -> duckdb.Statement:
    """Return the one SELECT statement that DuckDB's parser finds in a text. Raises InputError if there is another."""
    if "\0" in text:
        raise InputError(f"{what}: SQL cannot hold the character 0")
    try:
        text.encode()
        statements = duckdb.extract_statements(text)
    except (duckdb.Error, UnicodeError) as e:
        raise InputError(f"{what}: {sentence(e)}") from e
    if not statements:
        raise InputError(f"{what}: there is no SQL in it")
    if len(statements) > 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InputError(f"{what}: only one SELECT is allowed; the store is opened for reading")
    return statements[0]


def check_select(
    connection: duckdb.DuckDBPyConnection, text: str, what: str, known: Collection[str] = ()
) -> duckdb.Statement:
    """Return the text as one SELECT that reads the connection's tables; raise InputError for anything else.

    `known`: tables that exist, in lower case. The others are looked up, which takes a new DuckDB 9 ms.
    """
    statement = one_select(text, what)
    _check_tree(connection, _parse(connection, statement, what), what, known)
    return statement


def module_statements(
    connection: duckdb.DuckDBPyConnection, text: str, what: str, known: Collection[str] = ()
) -> list[duckdb.Statement]:
    """Return the statements that create a module's views, tables and macros, each over one SELECT or one expression.

    Each is composed here of parts that DuckDB parsed alone: a name, parameters, one SELECT. A macro may look up a table
    that it is given by name (`query_table`); its use is checked. `known`: as for `check_select`. Raises InputError.
    """
    tables, functions = {*known}, {"query_table"}
    statements = []
    for create, select in _created(text, what):
        tree = _parse(connection, select, what)
        _check_tree(connection, tree, what, tables, functions)
        if not create["relation"] and not create["table"]:
            _expression(tree, what)
        if create["relation"]:
            tables.add(create["relation"].lower())
            composed = f"CREATE {create['kind']} {create['relation']} AS\n{select.query}"
        else:
            functions.add(create["macro"].lower())
            composed = f"CREATE MACRO {create['macro']}({create['parameters']}) AS\n"
            composed += f"TABLE\n{select.query}" if create["table"] else f"(\n{create['body'].rstrip().rstrip(';')}\n)"
        try:
            [statement] = duckdb.extract_statements(composed)
        except (duckdb.Error, ValueError) as e:
            raise InputError(f"{what}: {sentence(e)}") from e
        if statement.type != duckdb.StatementType.CREATE:
            raise InputError(f"{what}: a module holds CREATE VIEW, CREATE TABLE and CREATE MACRO, nothing else")
        statements.append(statement)
    return statements


def _created(text: str, what: str) -> Iterator[tuple[re.Match[str], duckdb.Statement]]:
    """Yield the CREATE statements of a module, each with its SELECT: that of a scalar macro selects its expression."""
    try:
        text.encode()
        statements = [s.query for s in duckdb.extract_statements(text)]
    except (duckdb.Error, UnicodeError) as e:
        raise InputError(f"{what}: {sentence(e)}") from e
    for statement in statements:
        start = _COMMENT.match(statement)
        create = _CREATE.fullmatch(statement, start.end() if start else 0)
        parameters = create["parameters"] if create else None
        if not create or (parameters and not all(map(_PARAMETER.fullmatch, parameters.split(",")))):
            raise InputError(f"{what}: a module holds CREATE VIEW, CREATE TABLE and CREATE MACRO, nothing else")
        body = create["body"].rstrip().rstrip(";")
        yield create, one_select(body if create["relation"] or create["table"] else f"SELECT (\n{body}\n)", what)


def names_in(connection: duckdb.DuckDBPyConnection, text: str, what: str) -> set[str]:
    """Tables and functions that a SELECT names, in small letters; not what only its texts and comments hold.

    A text that a table function is given may be the name of a table, and counts. Raises InputError as `check_select`.
    """
    return _named(_parse(connection, one_select(text, what), what))


def names_in_module(connection: duckdb.DuckDBPyConnection, text: str, what: str) -> set[str]:
    """As `names_in`, for what the views, tables and macros of a module name, without themselves."""
    found: set[str] = set()
    own: set[str] = set()
    for create, body in _created(text, what):
        found |= _named(_parse(connection, body, what))
        own.add((create["relation"] or create["macro"]).lower())
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


GONE = "does not exist any more"
# DuckDB takes a local file that does not exist for a folder, which it may not list.
_MISSING_FILE = re.compile(
    r'Cannot access file "([^"]*)/\*\*/\*\.parquet"|No files found that match the pattern "([^"]*)"'
)


def failure(error: Exception, what: str) -> ReportedError:
    """Return the error to raise for one of DuckDB: MachineError if memory or the disk ran out, else InputError."""
    full = any(os.strerror(number) in str(error) for number in DISK_FULL)
    kind = MachineError if full or isinstance(error, duckdb.OutOfMemoryException) else InputError
    return kind(f"{what}: {sentence(error)}")


def sentence(error: Exception) -> str:
    """Return a DuckDB error on one line, without the excerpt of the SQL: it may not be the user's SQL."""
    if isinstance(error, UnicodeError) or "cannot encode str as UTF-8" in str(error):
        return "not valid UTF-8"
    if found := _MISSING_FILE.search(str(error)):
        return f"{found[1] or found[2]} {GONE}"
    lines = []
    for line in str(error).strip().splitlines():
        if line.startswith("LINE "):
            break
        if line.startswith("Possible solutions"):  # settings of DuckDB, which are not the user's
            lines.append("(what helps: more of it, $TRACEQUARRY_MEMORY; fewer threads, $TRACEQUARRY_THREADS; --where)")
            break
        if line.strip() and not line.startswith(_OF_SPILLING):
            lines.append(line.strip())
    return " ".join(lines) or type(error).__name__


_OF_SPILLING = (
    "Database is launched in in-memory mode",
    "Unused blocks cannot be",
    "Launch the database",
    "Or set SET temp",
)
"""What DuckDB advises where it has no folder to spill to; SQL of unknown origin never has one."""


def _parse(connection: duckdb.DuckDBPyConnection, select: duckdb.Statement, what: str) -> list[dict[str, Any]]:
    """Return a SELECT as a tree. Raises InputError where DuckDB has none."""
    try:
        # All rows are fetched: an open result would be in the way of the next one.
        [(parsed,)] = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [select.query]).fetchall()
        tree: dict[str, Any] = json.loads(parsed)
    except (duckdb.Error, UnicodeError) as e:
        raise InputError(f"{what}: {sentence(e)}") from e
    except RecursionError:
        raise InputError(f"{what}: the SQL is nested too deeply") from None
    if tree["error"]:
        raise InputError(f"{what}: {tree['error_type'].title()} Error: {' '.join(tree['error_message'].split())}")
    statements: list[dict[str, Any]] = tree["statements"]
    if len(statements) != 1:
        raise InputError(f"{what}: only one SELECT is allowed; the store is opened for reading")
    return statements


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
            if o["type"] == "SHOW_REF":
                _check_shown(o, what, known)
            elif o["type"] == "BASE_TABLE":
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


def _check_shown(source: dict[str, Any], what: str, known: Collection[str]) -> None:
    name = source["table_name"]
    if source["show_type"] == "SHOW" and name.lower() not in known:
        raise InputError(f"{what}: SHOW takes one of the tables (`analyze tables` lists them), not {name!r}")
    if source["show_type"] not in ("SHOW", "DESCRIBE", "SUMMARY") and name not in _SHOWN:
        raise InputError(f"{what}: SHOW takes TABLES or one of the tables, not {name!r}")


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
