"""The examples in README.md and docs/: every ```console block whose commands are `analyze ...` is run and compared.

`python tests/docs_examples.py` rewrites the outputs with what the commands print now.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from commands import bash, run_cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_COMMANDS = ("$ analyze ", "$ COLUMNS=80 analyze ")
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


class Example(NamedTuple):
    """A command and the output that the page shows; `...` on a line of its own stands for any lines."""

    page: Path
    command: str
    output: str


def blocks(text: str) -> list[re.Match[str]]:
    """The console blocks that hold commands of `analyze`."""
    return [m for m in _BLOCK.finditer(text) if m.group(1).startswith(_COMMANDS)]


def commands(block: str) -> list[tuple[str, str]]:
    """Commands and outputs of a block; a command may go on over lines that end with a backslash."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        lines = part.splitlines()
        n = 1
        while lines[n - 1].endswith("\\"):
            n += 1
        found.append(("\n".join(lines[:n]), "\n".join(lines[n:])))
    return found


def examples() -> list[Example]:
    """All examples of all pages."""
    return [
        Example(page, command, output)
        for page in PAGES
        for block in blocks(page.read_text())
        for command, output in commands(block.group(1))
    ]


def run(command: str) -> str:
    """What a command prints on stdout, or on stderr if it fails; `analyze` is the one of this Python.

    Notes and warnings on stderr depend on what was ingested before.
    """
    words = re.fullmatch(r"(?:COLUMNS=(\d+) )?analyze ([^|<>;&$`()]*)", command.replace("\\\n", " "))
    result = run_cli(*shlex.split(words[2]), cwd=ROOT, COLUMNS=words[1] or "160") if words else bash(command)
    lines = (result.stderr if result.returncode else result.stdout).splitlines()
    return "\n".join(line.rstrip() for line in lines if not line.startswith("read as: ")).strip("\n")


def matches(expected: str, actual: str) -> bool:
    """Whether an output is as shown, trailing spaces aside."""
    lines = [re.escape(line.rstrip()) for line in expected.strip("\n").splitlines()]
    pattern = "\n".join(r"(?:.*\n?)*?" if line == re.escape("...") else line for line in lines)
    return re.fullmatch(pattern.replace("(?:.*\\n?)*?\n", "(?:.*\\n)*?"), actual) is not None


def _rewrite(page: Path) -> None:
    def fresh(match: re.Match[str]) -> str:
        shown = []
        for command, output in commands(match.group(1)):
            actual = run(command)
            shown.append(f"$ {command}\n{output if matches(output, actual) else actual}\n")
        return "```console\n" + "".join(shown) + "```"

    text = page.read_text()
    new = _BLOCK.sub(lambda m: fresh(m) if m.group(1).startswith(_COMMANDS) else m.group(), text)
    if new != text:
        page.write_text(new)
        print(f"{page.relative_to(ROOT)}: rewritten")


if __name__ == "__main__":
    for page in PAGES:
        _rewrite(page)
