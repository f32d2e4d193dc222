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
_WIDEST_BOUNDARY = 256
"""Bytes of the longest `},{` with spaces that is found across two parts of a buffer."""
_TAIL_BYTES = 1 << 20

_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")


class Header(NamedTuple):
    """The part before the events: `text` is a JSON object without the events (b'{}' for a bare array)."""

    text: bytes
    is_array: bool


class Piece(NamedTuple):
    """A chunk of a plain file by position; the process that decodes it reads it."""

    path: RawPath
    start: int
    end: int

    def read(self) -> bytes:
        """Return its bytes; fewer if the file has become shorter."""
        with self.path.open("rb") as f:
            f.seek(self.start)
            return f.read(self.end - self.start)


Chunk = bytes | Piece


def read_chunk(chunk: Chunk) -> bytes:
    """Return the bytes of a chunk."""
    return chunk.read() if isinstance(chunk, Piece) else chunk


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
        if self._gunzip is None:
            return []
        stopped = f"reading stopped early ({self._gunzip.stopped})" if self._gunzip.stopped else None
        return [p for p in (stopped, self._gunzip.odd) if p]

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
            raise InputError(f"{self.path}: not a Chrome trace: it begins with {_excerpt(start)}, not with {{ or [")
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

    def chunks(self) -> Iterator[Chunk]:
        """Yield the bytes of the events, split at `},{`; the last chunk includes the rest of the file.

        A chunk begins with the comma after its predecessor: joined, the chunks are the file. A split may be wrong, for
        example if no event ends for long.
        """
        return self._decompressed() if self._gunzip else self._pieces()

    def _pieces(self) -> Iterator[Piece]:
        end, size = self._raw.tell(), os.fstat(self._raw.fileno()).st_size
        start = end - len(self._buffer)
        self._buffer = b""
        while True:
            cut = self._cut_between(start, end)
            if cut == start and end - start > LONGEST_EVENT:
                cut = end
            if cut > start:
                yield Piece(self.path, start, cut)
                start = cut
            if end >= size:
                break
            end = min(end + self.chunk_bytes, size)
        yield Piece(self.path, start, end)

    def _cut_between(self, start: int, end: int) -> int:
        """Return the end of the last event that ends between two positions; `start` if there is none."""
        look_back = _LOOK_BACK
        while True:
            begin = max(start, end - look_back)
            self._raw.seek(begin)
            cut = _last_boundary(self._raw.read(end - begin))
            if cut or begin == start:
                return begin + cut
            look_back *= 8

    def _decompressed(self) -> Iterator[bytes]:
        rest, new = b"", self._buffer
        self._buffer = b""
        while True:
            more = self._read()
            if cut := _last_boundary(new):
                yield b"".join((rest, memoryview(new)[:cut]))
                rest = new[cut:]
            else:
                rest += new
                cut = _last_boundary(rest) or (len(rest) if more and len(rest) > LONGEST_EVENT else 0)
                if cut:
                    yield rest[:cut]
                    rest = rest[cut:]
            if not more:
                break
            new = more
        yield rest


def _last_boundary(buffer: bytes) -> int:
    """Return the position after the `}` of the last `},{`; 0 if there is none."""
    end, size = len(buffer), _LOOK_BACK
    while end:
        begin = max(0, end - size)
        last = 0
        for found in _BOUNDARY.finditer(buffer, begin, end + _WIDEST_BOUNDARY):
            last = found.start() + 1
        if last:
            return last
        end, size = begin, size * 8
    return 0


def _excerpt(data: bytes) -> str:
    return repr(data[:12].decode("utf-8", "replace"))
