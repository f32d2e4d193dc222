"""Split a Chrome trace, sound or damaged, into chunks of events; the file is never in memory as a whole.

A trace is `{..., "traceEvents": [EVENT, EVENT, ...], ...}` or a bare `[EVENT, ...]`. It is split into chunks of a few
MB at what looks like a boundary between events (`},{`). A wrong split (inside `args` or a string) leaves brackets or
quotes open, so that decoding the chunk fails. Only then are the bytes scanned for events one by one
(`json_recovery.Scanner`), which also finds the end of the list and skips malformed bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from analyze.errors import InputError
from analyze.sources.chrome.json_recovery import LONGEST_AROUND, LONGEST_EVENT, events_list
from analyze.sources.chrome.producers import other_json
from analyze.sources.gunzip import MAGIC, Gunzip
from analyze.sources.remote import RawPath

CHUNK_BYTES = 8 << 20
_LOOK_BACK = 64 << 10
_TAIL_BYTES = 1 << 20

_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")


class Header(NamedTuple):
    """The part before the events: `text` is a JSON object without the events (b'{}' for a bare array)."""

    text: bytes
    is_array: bool


class TraceFile:
    """A trace file opened for one pass: `header`, then `chunks()`.

    Raises InputError if the file does not begin like a Chrome trace.
    """

    def __init__(self, path: RawPath, chunk_bytes: int = CHUNK_BYTES):
        self.path = path
        self.chunk_bytes = chunk_bytes
        self._raw: BinaryIO = path.open("rb")
        magic = self._raw.read(len(MAGIC))
        self._raw.seek(0)
        self._gunzip = Gunzip(self._raw) if magic == MAGIC else None
        self._buffer = self._read()
        self.header = self._take_header()

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    @property
    def position(self) -> int:
        """Bytes of the file on disk that were read."""
        return self._raw.tell()

    @property
    def gzip_problems(self) -> list[str]:
        """Problems of the gzip stream so far."""
        return self._gunzip.problems if self._gunzip else []

    def tail(self, longest: int | None = None) -> bytes:
        """Return the last MiB of the trace. A gzip file is decompressed for it unless it is larger than `longest`."""
        with self.path.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(0 if self._gunzip else max(0, size - _TAIL_BYTES))
            if self._gunzip is None:
                return f.read()
            last = b""
            if longest is None or size <= longest:
                stream = Gunzip(f)
                while more := stream.read(_TAIL_BYTES):
                    last = last[-_TAIL_BYTES:] + more
            return last

    def peek(self, size: int = 64 << 10) -> bytes:
        """Return up to `size` bytes of the beginning of the events; call it before `chunks`."""
        while len(self._buffer) < size and (more := self._read()):
            self._buffer += more
        return self._buffer[:size]

    def _read(self, size: int = 0) -> bytes:
        return (self._gunzip or self._raw).read(max(size, self.chunk_bytes))

    def _take_header(self) -> Header:
        start = self._buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start:
            why = "".join(f" ({p})" for p in self.gzip_problems)
            raise InputError(f"{self.path}: not a Chrome trace: the file is empty{why}")
        if start[:1] == b"[":
            self._buffer = start[1:]
            return Header(b"{}", True)
        if start[:1] != b"{":
            begin = start[:12].decode("utf-8", "replace")
            raise InputError(f"{self.path}: not a Chrome trace: it begins with {begin!r}, not with {{ or [")
        while (match := events_list(self._buffer)) is None:
            more = self._read(len(self._buffer))
            if not more or len(self._buffer) > LONGEST_AROUND:
                where = f" in its first {LONGEST_AROUND >> 20} MiB" if more else ""
                why = other_json(self._buffer) or f'it has no "traceEvents" list{where}'
                raise InputError(f"{self.path}: not a Chrome trace: {why}")
            self._buffer += more
        text = self._buffer[: match.start()].lstrip(b"\xef\xbb\xbf").rstrip().rstrip(b",")
        self._buffer = self._buffer[match.end() :]
        return Header(text + b"}", False)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the events, split at `},{`; the last chunk includes the rest of the file.

        A chunk begins with the comma after its predecessor: joined, the chunks are the file. A split may be wrong, for
        example if no event ends for long.
        """
        rest, self._buffer = self._buffer, b""
        while more := self._read():
            if cut := _last_boundary(rest) or (len(rest) if len(rest) > LONGEST_EVENT else 0):
                yield rest[:cut]
            rest = rest[cut:] + more
        if cut := _last_boundary(rest):
            yield rest[:cut]
        yield rest[cut:]


def _last_boundary(buffer: bytes) -> int:
    """Return the position after the `}` of the last `},{`; 0 if there is none."""
    for begin in (max(0, len(buffer) - _LOOK_BACK), 0):
        if cuts := [found.start() + 1 for found in _BOUNDARY.finditer(buffer, begin)]:
            return cuts[-1]
    return 0
