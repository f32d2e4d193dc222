"""A Chrome trace as a stream of its events' bytes, whatever state the file is in, never whole in memory.

A trace is `{..., "traceEvents": [EVENT, EVENT, ...], ...}` or a bare `[EVENT, ...]`. The file is cut into chunks of a
few MB at what looks like a boundary between events (`},{`). A cut that was wrong (inside `args`, inside a string)
leaves brackets or quotes open on both sides, so decoding the chunk tells; only then are the bytes scanned token by
token (`scan`), which also finds the end of the array and steps over what is malformed.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from analyze.errors import InputError

CHUNK_BYTES = 8 << 20
_HEADER_LIMIT = 256 << 20
_GZIP_MAGIC = b"\x1f\x8b"

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


class TraceFile:
    """A trace file opened for one pass: `header`, then `chunks()`.

    Raises InputError when the file cannot be read or is no Chrome trace by its beginning.
    """

    def __init__(self, path: Path, chunk_bytes: int = CHUNK_BYTES):
        self.path = path
        self.chunk_bytes = chunk_bytes
        self.read_error: str | None = None
        """Why reading stopped before the end (a truncated or damaged gzip stream), or None."""
        try:
            self._raw: BinaryIO = path.open("rb")
            magic = self._raw.read(2)
            self._raw.seek(0)
            self._file: BinaryIO = (
                gzip.GzipFile(fileobj=self._raw) if magic == _GZIP_MAGIC else self._raw  # type: ignore[assignment]
            )
        except OSError as e:
            raise InputError(f"{path}: cannot be read: {e.strerror}") from e
        self._buffer = self._read()
        self.header = self._take_header()

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def position(self) -> int:
        """Bytes of the file on disk consumed so far, for progress."""
        return self._raw.tell()

    def _read(self) -> bytes:
        if self.read_error:
            return b""
        try:
            return self._file.read(self.chunk_bytes)
        except (EOFError, zlib.error, OSError) as e:
            self.read_error = str(e).rstrip(".") or type(e).__name__
            return self._salvage()

    def _salvage(self) -> bytes:
        # GzipFile drops the block in which the stream broke; read it again to the last byte that decompresses.
        done = self._file.tell()
        out = bytearray()
        try:
            self._raw.seek(0)
            with gzip.GzipFile(fileobj=self._raw) as again:
                again.seek(done)
                while piece := again.read1(4096):
                    out += piece
        except (EOFError, zlib.error, OSError):
            pass
        return bytes(out)

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

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the events, cut where they look like `},{`; the last chunk holds whatever ends the file.

        A chunk begins with the comma behind its predecessor, so that the chunks joined are the file again. It may have
        been cut wrongly: see `scan`.
        """
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
        start, ended = _next_event(data, position)
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


def _next_event(data: bytes, position: int) -> tuple[int, bool]:
    """Where the next event starts (-1: none), or where the text behind the array starts, and True."""
    while position < len(data):
        byte = data[position]
        if byte == ord("{"):
            return position, False
        if byte == ord("]"):
            return position + 1, True
        position += 1
    return -1, False


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
