"""The documentation is true: its examples print what it shows, and every command and query is in it."""

from __future__ import annotations

import pytest
from docs_examples import PAGES, ROOT, Example, examples, matches, run

from analyze.query.query_files import catalog


@pytest.mark.parametrize("example", examples(), ids=lambda e: f"{e.page.stem}: {e.command[:60]}")
def test_example(example: Example) -> None:
    actual = run(example.command)
    assert matches(example.output, actual), f"{example.page.name} shows something else than:\n{actual}"


def test_matching() -> None:
    assert matches("a\n...\nd", "a\nb\nc\nd") and matches("a\n...", "a\nb") and matches("a \nb", "a\nb")
    assert not matches("a\n...\nd", "a\nb\nc") and not matches("a", "a\nb")


def test_every_query_is_documented() -> None:
    text = "\n".join(p.read_text() for p in PAGES)
    missing = [name for name in catalog() if f"`{name}`" not in text and f"query {name}" not in text]
    assert missing == []


def test_every_command_is_documented() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in (
        "analyze compare",
        "analyze pivot",
        "analyze advise",
        "analyze trace",
        "analyze plot roofline",
        "analyze ingest",
        "analyze query",
        "analyze sql",
        "analyze tables",
        "collect run",
        "collect sweep",
        "collect doctor",
    ):
        assert command in readme
