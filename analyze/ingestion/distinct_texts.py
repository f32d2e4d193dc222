"""Distinct texts in ascending order, with files for those that do not fit in memory."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path

MOST_BYTES = 32 << 20
"""Memory of one set; beyond it, texts are spilled to a file."""
_EACH = 150
"""Overhead of a text in bytes: the Python object and its slot in the set."""
_AT_ONCE = 4096
"""Texts per batch of a file."""
MOST_FILES = 64
"""Files that are merged at a time, at least two."""


class DistinctTexts:
    """A set that iterates in ascending order and spills to sorted files below `folder`.

    It can be pickled to another process, which reads the same files.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES):
        """Spill above `most_bytes` of memory; merge above `most_files` files."""
        self._folder = folder
        self._most_bytes, self._most_files = most_bytes, most_files
        self._kept: set[str] = set()
        self._bytes = 0
        self._files: list[Path] = []
        self._written = 0

    def add(self, texts: Iterable[str]) -> None:
        """Add texts, or the files of another such set. Raises OSError."""
        if isinstance(texts, DistinctTexts):
            self._files += texts._files
            texts = texts._kept
        remaining = iter(texts)
        while part := set(islice(remaining, _AT_ONCE)):
            part -= self._kept
            self._kept |= part
            self._bytes += sum(map(len, part)) + _EACH * len(part)
            if self._bytes > self._most_bytes:
                self._files.append(self._write(sorted(self._kept)))
                self._kept.clear()
                self._bytes = 0
        while len(self._files) > (most := self._most_files):
            merged, self._files = self._files[:most], self._files[most:]
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
