"""Documentation examples print what the page shows; every command and query is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import run_cli
from docs_examples import PAGES, Example, examples, matches, run
from support import ROOT

from analyze.cli.main import app as analyze_app
from analyze.query.query_files import catalog
from collect.cli import app as collect_app


@pytest.mark.parametrize("example", examples(), ids=lambda e: f"{e.page.stem}: {e.command[:60]}")
def test_documented_commands_print_their_output(example: Example) -> None:
    actual = run(example.command)
    assert matches(example.output, actual), f"{example.page.name} shows something else than:\n{actual}"


def test_output_matching() -> None:
    assert matches("a\n...\nd", "a\nb\nc\nd") and matches("a\n...", "a\nb") and matches("a \nb", "a\nb")
    assert not matches("a\n...\nd", "a\nb\nc") and not matches("a", "a\nb")


def test_every_example_is_found_and_shows_output() -> None:
    asked = [
        line for page in PAGES for line in page.read_text().splitlines() if re.match(r"\$ (COLUMNS=\d+ )?analyze", line)
    ]
    shown = examples()
    assert asked and [e.command.splitlines()[0] for e in shown] == [line.removeprefix("$ ") for line in asked]
    # Before an output of nothing but `...`, any is as shown; of no output at all, only a file that is written is one.
    assert [e.command for e in shown if e.output and set(e.output.split()) == {"..."}] == []
    assert [e.command for e in shown if not e.output and not re.search(r" (-o|--store) |>", e.command)] == []


def test_figures_of_the_gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the report of the same recordings below it, which the site builds, too."""
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"^analyze (plot|report) (.*) -o (\S+)$", (ROOT / "docs/gallery.md").read_text(), re.M)
    for (plot, asked, figure), (report, read, page) in zip(commands[::2], commands[1::2], strict=True):
        assert (plot, report) == ("plot", "report") and Path(figure).stem == Path(page).stem
        assert read.split()[-1] in asked
        assert run_cli(plot, *shlex.split(asked), "-o", tmp_path / figure).returncode == 0
        assert "<svg" in (tmp_path / figure).read_text()


TEXT = "\n".join(page.read_text() for page in PAGES)


def is_named(what: str, name: str) -> bool:
    """Whether the pages have a name on its own in code, or behind the command it is for; `ops` is not `ops-tree`."""
    return re.search(rf"`{name}`|\b{what} {name}(?![\w-])", TEXT) is not None


def test_every_query_is_documented() -> None:
    assert not is_named("query", "kernel-shar") and not is_named("query", "share") and is_named("query", "kernel-share")
    assert [name for name in catalog() if not is_named("query", name)] == []


def commands(program: str, command: Any) -> list[str]:
    """All commands of a program, subcommands included."""
    if not (below := getattr(command, "commands", {})):
        return [program]
    return [name for key, sub in below.items() for name in commands(f"{program} {key}", sub)]


@pytest.mark.parametrize(("app", "one"), [(analyze_app, "analyze plot"), (collect_app, "collect sweep")])
def test_every_command_is_documented(app: typer.Typer, one: str) -> None:
    program = one.split()[0]
    found = commands(program, typer.main.get_command(app))
    assert one in found
    assert [name for name in found if not is_named(program, name.removeprefix(f"{program} "))] == []
