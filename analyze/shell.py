"""Commands that people paste into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable


def in_shell(word: str) -> str:
    """A word of a command line, of which the shell runs nothing; SQL with texts in it stays readable."""
    if "'" in word and re.fullmatch(r"[\w.:=<>()%, '/+-]+", word, re.ASCII):
        return f'"{word}"'
    return shlex.quote(word)


def command(words: Iterable[str]) -> str:
    """A command line of these words."""
    return " ".join(map(in_shell, words))
