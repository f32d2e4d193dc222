"""Decompress a gzip file that may be damaged or truncated: every byte that still decodes."""

from __future__ import annotations

import zlib
from typing import BinaryIO

MAGIC = b"\x1f\x8b"
_READ = 256 << 10
_HEADER = 10
_TRAILER = 8
_HCRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16  # flags of RFC 1952


class Gunzip:
    """Reads the members of a gzip file one after the other.

    `stopped`: why reading ended before the end of the file. `odd`: what is wrong although all bytes were read (a wrong
    checksum).
    """

    def __init__(self, raw: BinaryIO):
        self.stopped: str | None = None
        self.odd: str | None = None
        self._raw = raw
        self._input = b""
        self._stream: zlib._Decompress | None = None
        self._crc = self._length = 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end."""
        pieces: list[bytes] = []
        missing = size
        while missing > 0 and self.stopped is None:
            if self._stream is None:
                if not self._begin():
                    break
            else:
                piece = self._inflate(self._stream, missing)
                self._crc, self._length = zlib.crc32(piece, self._crc), self._length + len(piece)
                pieces.append(piece)
                missing -= len(piece)
                if self._stream.eof:
                    self._end()
        return b"".join(pieces)

    def _fill(self, size: int) -> bool:
        """Read until there are `size` bytes of input; return False if the file has fewer."""
        while len(self._input) < size:
            more = self._raw.read(_READ)
            if not more:
                return False
            self._input += more
        return True

    def _begin(self) -> bool:
        """Skip the header of the next member; return False if there is none."""
        if not self._fill(1):
            return False
        if not (self._fill(2) and self._input.startswith(MAGIC)):
            if self._input.strip(b"\0") or self._raw.read(_READ).strip(b"\0"):  # zeros are padding
                self.odd = "bytes that are not gzip follow the gzip stream"
            return False
        if not self._fill(_HEADER):
            self.stopped = "the gzip stream is truncated"
            return False
        flags = self._input[3]
        if self._input[2] != 8 or flags >= 32:
            self.stopped = "the gzip stream is damaged (its header)"
            return False
        at = _HEADER
        if flags & _EXTRA and self._fill(at + 2):
            at += 2 + int.from_bytes(self._input[at : at + 2], "little")
        for flag in (_NAME, _COMMENT):
            if flags & flag and self._fill(at + 1):
                at = self._after_zero(at)
        at += 2 * bool(flags & _HCRC)
        if not self._fill(at):
            self.stopped = "the gzip stream is truncated"
            return False
        self._input = self._input[at:]
        self._stream = zlib.decompressobj(wbits=-15)
        self._crc = self._length = 0
        return True

    def _after_zero(self, at: int) -> int:
        """Return the position after the next zero byte."""
        while (end := self._input.find(b"\0", at)) < 0 and len(self._input) < _READ:
            if not self._fill(len(self._input) + 1):
                break
        return end + 1 if end >= 0 else len(self._input) + 1  # no end: beyond the input

    def _inflate(self, stream: zlib._Decompress, limit: int) -> bytes:
        """Return up to `limit` decompressed bytes."""
        if not self._fill(1):
            self.stopped = "the gzip stream is truncated"
            return stream.flush()
        before = stream.copy()
        try:
            out = stream.decompress(self._input, limit)
        except zlib.error as e:
            self.stopped = f"the gzip stream is damaged ({str(e).removeprefix('Error ')})"
            return _until_damage(before, self._input)
        self._input = stream.unused_data if stream.eof else stream.unconsumed_tail
        return out

    def _end(self) -> None:
        """Check the trailer of a member."""
        self._stream = None
        if not self._fill(_TRAILER):
            self.stopped = "the gzip stream is truncated"
            return
        crc, length = (int.from_bytes(self._input[i : i + 4], "little") for i in (0, 4))
        if (crc, length) != (self._crc, self._length % 2**32):
            self.odd = "the gzip checksum does not match: some of it may be wrong"
        self._input = self._input[_TRAILER:]


def _until_damage(stream: zlib._Decompress, data: bytes) -> bytes:
    """Return what decodes before the damaged byte: decode in smaller and smaller steps."""
    out = bytearray()
    for step in (16 << 10, 1 << 10, 64, 1):
        while data:
            before = stream.copy()
            try:
                out += stream.decompress(data[:step])
            except zlib.error:
                stream = before
                break
            data = data[step:]
    return bytes(out)
