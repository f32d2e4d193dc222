"""Command lines to paste into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable


def in_shell(word: str) -> str:
    """Quote a word for the shell; SQL with quotes stays readable."""
    if "'" in word and re.fullmatch(r"[\w.:=<>()%, '/+-]+", word, re.ASCII):
        return f'"{word}"'
    return shlex.quote(word)


def command(words: Iterable[str]) -> str:
    """Return a command line of these words."""
    return " ".join(map(in_shell, words))
