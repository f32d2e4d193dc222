"""A gzip stream that gives every byte it can, whatever state it is in."""

from __future__ import annotations

import zlib
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

ISAL: Any = None
"""ISA-L's zlib; None where there is no wheel of it."""
with suppress(ImportError):
    ISAL = import_module("isal.isal_zlib")

MAGIC = b"\x1f\x8b"
_READ = 256 << 10
_HEADER = 10
_TRAILER = 8
_ERRORS = (zlib.error, ISAL.error) if ISAL else (zlib.error,)
_HCRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16  # flags of RFC 1952


class Gunzip:
    """Reads the members of a gzip file one behind the other.

    `stopped` says why reading ended before the end of the file, `odd` what is wrong with bytes that were read all the
    same (a checksum that does not match).

    A member is inflated by ISA-L, more than twice as fast as by zlib. From where that finds it damaged or truncated, by
    zlib, which can say what of it still decodes: the state of its stream can be copied.
    """

    def __init__(self, raw: BinaryIO, isal: Any = ISAL):
        """`isal`: the module, or None to inflate with zlib alone."""
        self.stopped: str | None = None
        self.odd: str | None = None
        self._raw = raw
        self._input = b""
        self._stream: Any = None
        self._with_isal = isal is not None
        self._crc32 = isal.crc32 if isal else zlib.crc32
        self._members = self._crc = self._length = 0
        self._begins = 0
        """Where the member that is read begins in the file, behind its header."""

    def read(self, size: int) -> bytes:
        """At most so many bytes; fewer only at the end."""
        pieces: list[bytes] = []
        missing = size
        while missing > 0 and self.stopped is None:
            if self._stream is None:
                if not self._begin():
                    break
            else:
                piece = self._inflate(self._stream, missing)
                self._crc, self._length = self._crc32(piece, self._crc), self._length + len(piece)
                pieces.append(piece)
                missing -= len(piece)
                if self._stream.eof:
                    self._end()
        return b"".join(pieces)

    def _fill(self, size: int) -> bool:
        """Have so many bytes of input; False if the file has no more."""
        while len(self._input) < size:
            more = self._raw.read(_READ)
            if not more:
                return False
            self._input += more
        return True

    def _begin(self) -> bool:
        """Step over the header of the next member; False if there is none."""
        if not self._fill(1):
            return False
        if not (self._fill(2) and self._input.startswith(MAGIC)):
            if self._input.strip(b"\0") or self._raw.read(_READ).strip(b"\0"):  # zeros are padding
                self.odd = "something that is no gzip follows the gzip stream"
            return False
        self._members += 1
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
                at = self._behind_zero(at)
        at += 2 * bool(flags & _HCRC)
        if not self._fill(at):
            self.stopped = "the gzip stream is truncated"
            return False
        self._input = self._input[at:]
        self._begins = self._raw.tell() - len(self._input)
        self._stream = (ISAL if self._with_isal else zlib).decompressobj(wbits=-15)
        self._crc = self._length = 0
        return True

    def _behind_zero(self, at: int) -> int:
        while (end := self._input.find(b"\0", at)) < 0 and len(self._input) < _READ:
            if not self._fill(len(self._input) + 1):
                break
        return end + 1 if end >= 0 else len(self._input) + 1  # no end: more than there is

    def _inflate(self, stream: Any, limit: int) -> bytes:
        """What comes next, at most so many bytes; none where zlib takes over."""
        if not self._fill(1):
            if self._with_isal:
                return self._go_on_with_zlib()
            self.stopped = "the gzip stream is truncated"
            return bytes(stream.flush())
        before = None if self._with_isal else stream.copy()
        try:
            out = stream.decompress(self._input, limit)
        except _ERRORS as e:
            if before is None:
                return self._go_on_with_zlib()
            self.stopped = f"the gzip stream is damaged ({str(e).removeprefix('Error ')})"
            return _until_damage(before, self._input)
        self._input = stream.unused_data if stream.eof else stream.unconsumed_tail
        return bytes(out)

    def _go_on_with_zlib(self) -> bytes:
        """Be where ISA-L is in the member, with zlib; gives nothing."""
        self._with_isal = False
        self._raw.seek(self._begins)
        self._input, self._stream = b"", zlib.decompressobj(wbits=-15)
        given = self._length
        while given and self.stopped is None:
            given -= len(self._inflate(self._stream, min(given, _READ)))
        return b""

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
    """What still decodes of input in which decoding fails: in ever smaller steps, down to the byte that cannot be."""
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
