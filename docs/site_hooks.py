"""Pages of the documentation site that are made from the code: queries, tables, commands and the Python API.

mkdocs loads this file (mkdocs.yml, `hooks`). Links of the plain pages that lead out of docs/ become what the site
has instead.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    made: dict[str, Callable[[], str]] = {
        "reference/queries.md": queries,
        "reference/tables.md": tables,
        "reference/commands.md": commands,
        "reference/python.md": python_api,
        "sample-traces.md": lambda: (ROOT / "sample_traces/README.md").read_text(encoding="utf-8"),
        "study-files.md": lambda: (ROOT / "studies/README.md").read_text(encoding="utf-8").replace("](../docs/", "]("),
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links out of docs/: samples and studies have a page here, other files of the repository are named only."""
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace("](../sample_traces/README.md", f"]({up}sample-traces.md")
    markdown = markdown.replace("](../README.md", f"]({up}index.md")
    markdown = re.sub(r"\]\((?:\.\./)+studies/README\.md(?=[#)])", f"]({up}study-files.md", markdown)
    return re.sub(r"\[([^\]]+)\]\(\.\./(?!.*\.md)[^)]+\)", r"`\1`", markdown)


def queries() -> str:
    """Every query with its parameters and columns, group by group."""
    from analyze.query.query_files import catalog

    text = ["# Queries", "", "`analyze query NAME PATH...` answers one; `--explain` shows its SQL.", ""]
    group = None
    for query in sorted(catalog().values(), key=lambda q: (q.group, q.name)):
        if query.group != group:
            group = query.group
            text += [f"## {group}", ""]
        text += [f"### {query.name}", "", f"**{query.question}** {_cell(query.description)}", ""]
        if query.needs:
            text += [f"Needs {query.needs}.", ""]
        if query.params:
            text += ["| parameter | default | takes | |", "| --- | --- | --- | --- |"]
            text += [f"| `{p.name}` | `{p.default}` | {_cell(p.takes)} | {_cell(p.doc)} |" for p in query.params]
            text += [""]
        text += ["| column | unit | |", "| --- | --- | --- |"]
        text += [f"| `{c.name}` | {c.unit} | {_cell(c.doc)} |" for c in query.columns] + [""]
    return "\n".join(text)


def tables() -> str:
    """Every table with its columns, as `analyze tables` prints them."""
    from schemas.tables import TABLES

    text = ["# Tables", "", "What `analyze sql` and query files read; times are integers of ns.", ""]
    for table in TABLES.values():
        text += [f"## {table.name}", "", f"A row is {table.row}.", ""]
        text += ["| column | type | unit | |", "| --- | --- | --- | --- |"]
        text += [f"| `{c.name}` | {c.type} | {c.unit} | {_cell(c.doc)} |" for c in table.columns] + [""]
    return "\n".join(text)


def commands() -> str:
    """Every command with its arguments and options."""
    import click
    from typer.main import get_command

    import analyze.cli
    import collect.cli

    text = ["# Commands", ""]

    def add(name: str, command: click.Command) -> None:
        if isinstance(inner := getattr(command, "commands", None), dict):
            for key, value in inner.items():
                add(f"{name} {key}", value)
            return
        text.extend([f"## {name}", "", inspect.cleandoc(command.help or ""), ""])
        rows = [_parameter(p) for p in command.params if not getattr(p, "hidden", False)]
        text.extend(["| | |", "| --- | --- |", *rows, ""])

    add("analyze", get_command(analyze.cli.app))
    add("collect", get_command(collect.cli.app))
    return "\n".join(text)


def _parameter(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else [parameter.name]
    shown = ", ".join(f"`{n.upper() if parameter.param_type_name == 'argument' else n}`" for n in names)
    default = parameter.default
    said = f" Default: `{default}`." if default not in (None, False, "", ()) and not callable(default) else ""
    return f"| {shown} | {_cell(getattr(parameter, 'help', '') or '')}{_cell(said)} |"


def python_api() -> str:
    """The public functions and classes of `analyze`, with their signatures and docstrings."""
    import analyze

    text = ["# Python", "", inspect.cleandoc(analyze.__doc__ or ""), ""]
    for name in analyze.__all__:
        thing = getattr(analyze, name)
        text += [f"## {name}", ""]
        if inspect.isclass(thing):
            text += [inspect.cleandoc(thing.__doc__ or ""), ""]
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_"):
                    text += _function(f"{name}.{method}", function, "###")
        else:
            text += _function(name, thing, "")
    return "\n".join(text)


def _function(name: str, function: Callable[..., Any], heading: str) -> list[str]:
    signature = f"{name}{inspect.signature(function)}"
    head = [f"{heading} {name}", ""] if heading else []
    return [*head, "```python", signature, "```", "", inspect.cleandoc(function.__doc__ or ""), ""]


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
