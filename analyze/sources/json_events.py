"""A Chrome trace as a stream of its events' bytes, whatever state the file is in, never whole in memory.

A trace is `{..., "traceEvents": [EVENT, EVENT, ...], ...}` or a bare `[EVENT, ...]`. The file is cut into chunks of a
few MB at what looks like a boundary between events (`},{`). A cut that was wrong (inside `args`, inside a string)
leaves brackets or quotes open on both sides, so decoding the chunk tells; only then are the bytes scanned token by
token (`scan`), which also finds the end of the array and steps over what is malformed.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from analyze.errors import InputError

CHUNK_BYTES = 8 << 20
_HEADER_LIMIT = 256 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_READ = 256 << 10
_LOOK_BACK = 64 << 10

_STRING = rb'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(_STRING + rb'|"(?:[^"\\]|\\.)*\\?\Z|[{}\[\]]', re.DOTALL)
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
_EVENT_START = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|args|id|dur|s|bp)"\s*:')
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_REPAIR = re.compile(
    _STRING + rb"|,(?=\s*[}\]])|(?<=[:,\[\s])[-+]?(?:NaN|nan|Infinity|inf|N/A|undefined)(?=[\s,}\]])", re.DOTALL
)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(?:[^"\\/bfnrtu]|u(?![0-9a-fA-F]{4}))', re.DOTALL)


class Header(NamedTuple):
    """What stands around the events: `text` is a JSON object without the events (b'{}' for a bare array)."""

    text: bytes
    is_array: bool


class Scan(NamedTuple):
    """Result of scanning: whole events, what is left over behind them, and how many events were malformed."""

    events: list[bytes]
    rest: bytes
    malformed: int
    ended: bool
    """The events array was closed; `rest` is what follows it."""


class Piece(NamedTuple):
    """A chunk of a plain file by its place, for the process that decodes it to read."""

    path: Path
    start: int
    end: int

    def read(self) -> bytes:
        """Its bytes; fewer if the file has become shorter."""
        try:
            with self.path.open("rb") as f:
                f.seek(self.start)
                return f.read(self.end - self.start)
        except OSError as e:
            raise InputError(f"{self.path}: cannot be read: {e.strerror}") from e


Chunk = bytes | Piece


def read_chunk(chunk: Chunk) -> bytes:
    """What stands in a chunk."""
    return chunk.read() if isinstance(chunk, Piece) else chunk


class _Gunzip:
    """A gzip stream that gives every byte it can: where it breaks, `error` says why and reading ends."""

    def __init__(self, raw: BinaryIO):
        self.error: str | None = None
        self._raw = raw
        self._stream = zlib.decompressobj(wbits=31)
        self._input = b""

    def read(self, size: int) -> bytes:
        """At most so many bytes; fewer only at the end."""
        out = bytearray()
        while len(out) < size and self.error is None:
            if self._stream.eof:
                self._input = self._stream.unused_data or self._raw.read(_GZIP_READ)
                if not self._input.startswith(_GZIP_MAGIC):
                    break
                self._stream = zlib.decompressobj(wbits=31)
            elif not self._input:
                self._input = self._raw.read(_GZIP_READ)
                if not self._input:
                    self.error = "the gzip stream is truncated"
                    out += self._stream.flush()
                    break
            try:
                out += self._stream.decompress(self._input, size - len(out))
                self._input = self._stream.unconsumed_tail
            except zlib.error as e:
                self.error = f"the gzip stream is damaged ({str(e).removeprefix('Error ')})"
        return bytes(out)


class TraceFile:
    """A trace file opened for one pass: `header`, then `chunks()`.

    Raises InputError when the file cannot be read or is no Chrome trace by its beginning.
    """

    def __init__(self, path: Path, chunk_bytes: int = CHUNK_BYTES):
        self.path = path
        self.chunk_bytes = chunk_bytes
        try:
            self._raw: BinaryIO = path.open("rb")
            magic = self._raw.read(2)
            self._raw.seek(0)
        except OSError as e:
            raise InputError(f"{path}: cannot be read: {e.strerror}") from e
        self._gunzip = _Gunzip(self._raw) if magic == _GZIP_MAGIC else None
        self._buffer = self._read()
        self.header = self._take_header()

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    @property
    def read_error(self) -> str | None:
        """Why reading stopped before the end (a truncated or damaged gzip stream), or None."""
        return self._gunzip.error if self._gunzip else None

    def _read(self) -> bytes:
        return (self._gunzip or self._raw).read(self.chunk_bytes)

    def _take_header(self) -> Header:
        start = self._buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start:
            why = f" ({self.read_error})" if self.read_error else ""
            raise InputError(f"{self.path}: not a Chrome trace: the file is empty{why}")
        if start[:1] == b"[":
            self._buffer = start[1:]
            return Header(b"{}", True)
        if start[:1] != b"{":
            raise InputError(f"{self.path}: not a Chrome trace: it begins with {_excerpt(start)}, not with {{ or [")
        searched = 0
        while True:
            for match in _EVENTS_KEY.finditer(self._buffer, max(0, searched - 64)):
                if _depth_at(self._buffer, match.start()) == 1:
                    text = self._buffer[: match.start()].lstrip(b"\xef\xbb\xbf").rstrip().rstrip(b",")
                    self._buffer = self._buffer[match.end() :]
                    return Header(text + b"}", False)
            searched = len(self._buffer)
            more = self._read()
            if not more or searched > _HEADER_LIMIT:
                raise InputError(f'{self.path}: not a Chrome trace: it has no "traceEvents" list')
            self._buffer += more

    def chunks(self) -> Iterator[Chunk]:
        """The bytes of the events, cut where they look like `},{`; the last chunk holds whatever ends the file.

        A chunk begins with the comma behind its predecessor, so that the chunks joined are the file again. It may have
        been cut wrongly: see `scan`.
        """
        return self._unpacked() if self._gunzip else self._pieces()

    def _pieces(self) -> Iterator[Piece]:
        end, size = self._raw.tell(), os.fstat(self._raw.fileno()).st_size
        start = end - len(self._buffer)
        self._buffer = b""
        while True:
            cut = self._cut_between(start, end)
            if cut > start:
                yield Piece(self.path, start, cut)
                start = cut
            if end >= size:
                break
            end = min(end + self.chunk_bytes, size)
        yield Piece(self.path, start, end)

    def _cut_between(self, start: int, end: int) -> int:
        """Where to cut a plain file: behind the last event that ends between two places, or `start` if none does."""
        look_back = _LOOK_BACK
        while True:
            begin = max(start, end - look_back)
            self._raw.seek(begin)
            cut = _last_boundary(self._raw.read(end - begin))
            if cut or begin == start:
                return begin + cut
            look_back *= 8

    def _unpacked(self) -> Iterator[bytes]:
        while True:
            more = self._read()
            if not more:
                break
            cut = _last_boundary(self._buffer)
            if cut:
                yield self._buffer[:cut]
                self._buffer = self._buffer[cut:] + more
            else:
                self._buffer += more
        cut = _last_boundary(self._buffer)
        if cut:
            yield self._buffer[:cut]
        yield self._buffer[cut:]
        self._buffer = b""


def _last_boundary(buffer: bytes) -> int:
    """Position behind the `}` of the last `},{`; 0 if there is none."""
    at = len(buffer)
    while (at := buffer.rfind(b"}", 0, at)) > 0:
        if _BOUNDARY.match(buffer, at):
            return at + 1
    return 0


def _depth_at(buffer: bytes, position: int) -> int:
    """Bracket depth at a position, strings skipped; -1 inside a string."""
    depth = 0
    for token in _TOKEN.finditer(buffer):
        if token.start() >= position:
            return depth
        if token.end() > position:
            return -1
        first = buffer[token.start()]
        depth += (first in b"{[") - (first in b"}]")
    return depth


def scan(data: bytes, at_end: bool) -> Scan:
    """Find whole events in bytes that start between two events, token by token.

    Without `at_end` an unfinished event at the end is returned in `rest`, to be continued by the next chunk; with it,
    the unfinished event counts as malformed. A malformed event is skipped up to the next thing that looks like one.
    """
    events: list[bytes] = []
    malformed = 0
    position = 0
    while True:
        start, ended, junk = _next_event(data, position)
        malformed += junk
        if ended:
            return Scan(events, data[start:], malformed, True)
        if start < 0:
            return Scan(events, b"", malformed, False)
        end = _event_end(data, start)
        if end < 0:
            rest = data[start:]
            resync = _EVENT_START.search(data, start + 1)
            if not at_end and len(rest) < 4 * CHUNK_BYTES:
                return Scan(events, rest, malformed, False)
            malformed += 1
            if not resync:
                return Scan(events, b"", malformed, False)
            position = resync.start()
            continue
        events.append(data[start:end])
        position = end


def resync(event: bytes) -> list[bytes]:
    """Whole events hidden in the bytes of a malformed one (an unescaped quote swallows its followers)."""
    found = []
    for match in _EVENT_START.finditer(event, 1):
        end = _event_end(event, match.start())
        if end > 0:
            found.append(event[match.start() : end])
    return found


class _Place(NamedTuple):
    """Where the scan goes on: at an event, behind the array's end, or (-1) nowhere."""

    position: int
    ended: bool
    junk: bool
    """Something was passed that is neither an event nor a comma."""


def _next_event(data: bytes, position: int) -> _Place:
    junk = False
    while position < len(data):
        byte = data[position]
        if byte == ord("{"):
            return _Place(position, False, junk)
        if byte == ord("]"):
            return _Place(position + 1, True, junk)
        junk = junk or byte not in b" \t\r\n,"
        position += 1
    return _Place(-1, False, junk)


def _event_end(data: bytes, start: int) -> int:
    """Position behind the bracket that closes the event; -1 if the data ends first."""
    depth = 0
    for token in _TOKEN.finditer(data, start):
        first = data[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return -1


def repair(data: bytes) -> bytes:
    """The same JSON with NaN and N/A as null, no trailing commas, control characters escaped, bad UTF-8 replaced."""

    def fix(match: re.Match[bytes]) -> bytes:
        text = match.group()
        if text[0] == ord('"'):
            text = _CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], text)
            return _BAD_ESCAPE.sub(lambda m: b"\\" + m.group(), text)
        return b"" if text[0] == ord(",") else b"null"

    return _REPAIR.sub(fix, data.decode("utf-8", "replace").encode())


def _excerpt(data: bytes) -> str:
    return repr(data[:12].decode("utf-8", "replace"))
