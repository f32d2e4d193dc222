"""Distinct texts in ascending order, be they more than memory holds."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path

MOST_BYTES = 32 << 20
"""In memory of one set; beyond that they go to a file."""
_EACH = 150
"""Bytes that a text takes beside its letters: Python's object, and its place in a set."""
_AT_ONCE = 4096
"""Texts that are written and read at a time."""
MOST_FILES = 64
"""That are merged at a time, two at least."""


class DistinctTexts:
    """A set that is read in ascending order. What is too much for memory lies in sorted files below `folder`.

    It may be sent to another process, which then reads the same files.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._kept: set[str] = set()
        self._bytes = 0
        self._files: list[Path] = []
        self._written = 0

    def add(self, texts: Iterable[str]) -> None:
        """Add texts; those of another set of this kind stay in its files. Raises OSError."""
        if isinstance(texts, DistinctTexts):
            self._files += texts._files
            texts = texts._kept
        remaining = iter(texts)
        while part := set(islice(remaining, _AT_ONCE)):
            part -= self._kept
            self._kept |= part
            self._bytes += sum(map(len, part)) + _EACH * len(part)
            if self._bytes > MOST_BYTES:
                self._files.append(self._write(sorted(self._kept)))
                self._kept.clear()
                self._bytes = 0
        while len(self._files) > MOST_FILES:
            merged, self._files = self._files[:MOST_FILES], self._files[MOST_FILES:]
            self._files.append(self._write(_merged(map(_read, merged))))

    def __iter__(self) -> Iterator[str]:
        return _merged([sorted(self._kept), *map(_read, self._files)])

    def _write(self, texts: Iterable[str]) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / str(self._written)
        self._written += 1
        remaining = iter(texts)
        with path.open("wb") as file:
            while part := list(islice(remaining, _AT_ONCE)):
                pickle.dump(part, file, pickle.HIGHEST_PROTOCOL)
        return path


def _merged(sorted_texts: Iterable[Iterable[str]]) -> Iterator[str]:
    return (text for text, _ in groupby(heapq.merge(*sorted_texts)))


def _read(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        while file.peek(1):
            yield from pickle.load(file)
