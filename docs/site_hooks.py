"""Pages of the documentation site that are made from the code: queries, tables, commands and the Python API.

mkdocs loads this file (mkdocs.yml, `hooks`). Links of the plain pages that lead out of docs/ become what the site
has instead.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
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
        "notebook.md": notebook,
        "examples.md": examples,
        "sample-traces.md": lambda: (ROOT / "sample_traces/README.md").read_text(encoding="utf-8"),
        "study-files.md": lambda: (ROOT / "studies/README.md").read_text(encoding="utf-8").replace("](../docs/", "]("),
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text()))
    for path, content in {**figures(), **(gallery() if config.extra["gallery"] else {})}.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links out of docs/: samples and studies have a page here, other files of the repository are named only."""
    if page.file.src_uri == "gallery.md" and config.extra["gallery"]:
        markdown = _COMMANDS.sub(r"[![\1](gallery/\2.svg)](gallery/\2.html)\n\n\g<0>", markdown)
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace("](../sample_traces/README.md", f"]({up}sample-traces.md")
    markdown = markdown.replace("](../README.md", f"]({up}index.md")
    markdown = markdown.replace("](../examples/README.md", f"]({up}examples.md")
    markdown = markdown.replace("](notebook.ipynb", "](notebook.md")
    markdown = re.sub(r"\]\((?:\.\./)+studies/README\.md(?=[#)])", f"]({up}study-files.md", markdown)
    return re.sub(r"\[([^\]]+)\]\(\.\./(?!.*\.md)[^)]+\)", r"`\1`", markdown)


def _cells() -> list[tuple[str, str, list[dict[str, str]]]]:
    """The cells of the notebook: markdown or code, their text, and what each output holds by its kind."""
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"]), list(map(_output, cell.get("outputs", ())))) for cell in cells]


def _output(output: dict[str, Any]) -> dict[str, str]:
    data = output.get("data") or {"text/plain": output["text"]}
    return {kind: "".join(text) for kind, text in data.items()}


def figures() -> dict[str, str]:
    """The figures of the notebook by their files."""
    found = [o["image/svg+xml"] for _, _, outputs in _cells() for o in outputs if "image/svg+xml" in o]
    return {f"notebook-{number}.svg": svg for number, svg in enumerate(found, 1)}


def notebook() -> str:
    """The notebook as a page: its cells with what they show."""
    text = []
    files = iter(figures())
    for kind, source, outputs in _cells():
        text += [source if kind == "markdown" else f"```python\n{source}\n```", ""]
        for output in outputs:
            if "image/svg+xml" in output:
                text += [f"![The figure that the cell above draws]({next(files)})", ""]
            elif html := output.get("text/html"):
                # One block to Markdown: no empty line in it.
                text += [
                    f'<div class="output">{"".join(line for line in html.splitlines(True) if line.strip())}</div>',
                    "",
                ]
            else:
                text += [f"```text\n{output['text/plain'].rstrip()}\n```", ""]
    return "\n".join([*text, "The same as a file for Jupyter: `docs/notebook.ipynb`.", ""])


_COMMANDS = re.compile(r"```sh\nanalyze plot (\S+) .* -o (\S+)\.svg\nanalyze report .* -o \2\.html\n```")
"""The commands of a section of the gallery."""


@cache
def gallery() -> dict[str, bytes]:
    """What the commands of the gallery write: figures and reports of sample traces."""
    commands = re.findall(r"^analyze (.*) -o (\S+)$", (ROOT / "docs/gallery.md").read_text(encoding="utf-8"), re.M)
    with TemporaryDirectory() as folder:
        for arguments, name in commands:
            program = [sys.executable, "-m", "analyze", *shlex.split(arguments), "-o", str(Path(folder, name))]
            done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise PluginError(f"docs/gallery.md: analyze {arguments}: {done.stderr}")
        return {f"gallery/{file.name}": file.read_bytes() for file in sorted(Path(folder).iterdir())}


def examples() -> str:
    """The page about the examples: the programs are named only."""
    text = (ROOT / "examples/README.md").read_text(encoding="utf-8").replace("](../docs/", "](")
    return re.sub(r"\[(`[^`]+`)\]\([^)]+\)", r"\1", text)


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
        if query.gpu_columns:
            text += [f"`--by` and `--where` can use {' and '.join(query.gpu_columns)}.", ""]
        if query.params:
            text += ["| parameter | default | takes | |", "| --- | --- | --- | --- |"]
            text += [f"| `{p.name}` | `{p.default}` | {_cell(p.takes)} | {_cell(p.doc)} |" for p in query.params]
            text += [""]
        text += ["| column | unit | |", "| --- | --- | --- |"]
        text += [f"| `{c.name}` | {c.unit} | {_cell(c.doc)} |" for c in query.columns] + [""]
    return "\n".join(text)


def tables() -> str:
    """Every table with its columns, as `analyze tables` prints them."""
    from analyze.stored_tables import DERIVED_TABLES, TABLES

    text = ["# Tables", "", "What `analyze sql` and query files read; times are integers of ns.", ""]
    for table in TABLES.values():
        derived = " Derived from other tables at ingest." if table.name in DERIVED_TABLES else ""
        text += [f"## {table.name}", "", f"A row is {table.row}.{derived}", ""]
        text += ["| column | type | unit | |", "| --- | --- | --- | --- |"]
        text += [f"| `{c.name}` | {c.type} | {c.unit} | {_cell(c.doc)} |" for c in table.columns] + [""]
    return "\n".join(text)


def commands() -> str:
    """Every command with its arguments and options."""
    import click
    from typer.main import get_command

    import analyze.cli.main
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

    add("analyze", get_command(analyze.cli.main.app))
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
    from analyze import notebook as notebook_answers
    from analyze.query_functions import Queries
    from analyze.report.output_files import Drawing

    text = ["# Python", "", inspect.cleandoc(analyze.__doc__ or ""), ""]
    shown = {name: getattr(analyze, name) for name in analyze.__all__}
    shown |= {"Answer": notebook_answers.Answer, "Queries": Queries, "Drawing": Drawing}
    for name, thing in shown.items():
        text += [f"## {name}", ""]
        if inspect.isclass(thing):
            text += [inspect.cleandoc(thing.__doc__ or ""), ""]
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_"):
                    text += _function(f"{name}.{method}", function, "###")
            for attribute, made in inspect.getmembers(thing, lambda member: isinstance(member, property)):
                text += [f"### {name}.{attribute}", "", inspect.cleandoc(made.__doc__ or ""), ""]
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
