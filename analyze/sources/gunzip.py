"""Decompress a gzip file that may be damaged or truncated: every byte that still decodes."""

from __future__ import annotations

import zlib
from typing import BinaryIO

MAGIC = b"\x1f\x8b"
_READ = 256 << 10
_TRUNCATED = "the gzip stream is truncated"


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
        self._member: zlib._Decompress | None = None

    @property
    def problems(self) -> list[str]:
        """What was wrong so far, in words."""
        stopped = f"reading stopped early ({self.stopped})" if self.stopped else None
        return [p for p in (stopped, self.odd) if p]

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end."""
        pieces: list[bytes] = []
        missing = size
        while missing > 0 and self.stopped is None:
            self._member = self._member or self._next_member()
            if self._member is None:
                break
            pieces.append(self._inflate(self._member, missing))
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _fill(self, size: int) -> bool:
        """Read until there are `size` bytes of input; return False if the file has fewer."""
        while len(self._input) < size:
            more = self._raw.read(_READ)
            if not more:
                return False
            self._input += more
        return True

    def _next_member(self) -> zlib._Decompress | None:
        if self._fill(2) and self._input.startswith(MAGIC):
            return zlib.decompressobj(wbits=31)
        if self._input.strip(b"\0") or self._raw.read(_READ).strip(b"\0"):  # zeros are padding
            self.odd = "bytes that are not gzip follow the gzip stream"
        return None

    def _inflate(self, member: zlib._Decompress, limit: int) -> bytes:
        """Return up to `limit` decompressed bytes."""
        if not self._fill(1):
            self.stopped = _TRUNCATED
            return member.flush()
        before = member.copy()
        try:
            out = member.decompress(self._input, limit)
        except zlib.error as e:
            out, self._input = _until_damage(before, self._input)
            said = str(e).removeprefix("Error ")
            if said.endswith(("incorrect data check", "incorrect length check")):
                self._end_wrong_member(left=4 if "data check" in said else 0)
            else:
                self.stopped = f"the gzip stream is damaged ({said})"
            return out
        self._input = member.unused_data if member.eof else member.unconsumed_tail
        if member.eof:
            self._member = None
        return out

    def _end_wrong_member(self, left: int) -> None:
        """Note a wrong checksum or length; skip the bytes that are left of the trailer: the length."""
        self.odd = "the gzip checksum does not match: some of it may be wrong"
        if not self._fill(left):
            self.stopped = _TRUNCATED
        self._input = self._input[left:]
        self._member = None


def _until_damage(member: zlib._Decompress, data: bytes) -> tuple[bytes, bytes]:
    """Return what decodes before the damaged byte, and the bytes after it: decode in smaller and smaller steps."""
    out = bytearray()
    for step in (16 << 10, 1 << 10, 64, 1):
        while data:
            before = member.copy()
            try:
                out += member.decompress(data[:step])
            except zlib.error:
                member = before
                break
            data = data[step:]
    return bytes(out), data[1:]
