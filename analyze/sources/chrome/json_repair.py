"""Convert nearly valid JSON to strict JSON: NaN, trailing commas, invalid UTF-8 and invalid escapes."""

from __future__ import annotations

import re
from itertools import chain, pairwise

STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
"""Pattern of a quoted string."""
EVENT_START = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|args|id|dur|s|bp)"\s*:')
"""The beginning of an event. It cannot be part of a string."""
LONGEST_REPAIR = 1 << 20
"""Limit in bytes of an event that is repaired."""

_REPAIR = re.compile(
    STRING
    + rb'|"[^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z|,(?=\s*[}\]])'
    + rb"|(?<=[:,\[\s])[-+]?(?:NaN|nan|Infinity|inf|N/A|undefined)(?=[\s,}\]])",
    re.DOTALL,
)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPE = re.compile(
    rb'\\(?:(u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)|(u[dD][89a-fA-F][0-9a-fA-F]{2})|["\\/bfnrt]|u[0-9a-fA-F]{4})?',
    re.DOTALL,
)


def repair(data: bytes) -> bytes:
    """Return the JSON with NaN and N/A as null, without trailing commas, and with valid escapes and UTF-8 in strings.

    Each event is repaired alone, so that an extra quote in one of them does not affect the others.
    """
    data = data.decode("utf-8", "replace").encode()
    out = bytearray()
    cuts = chain((m.start() for m in EVENT_START.finditer(data)), [len(data)])
    for begin, end in pairwise(chain([0], cuts)):
        piece = data[begin:end]
        out += _REPAIR.sub(_mend, piece) if len(piece) <= LONGEST_REPAIR else piece
    return bytes(out)


def _mend(match: re.Match[bytes]) -> bytes:
    text = match.group()
    if text[0] == ord('"'):
        text = _CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], text)
        return _ESCAPE.sub(_mend_escape, text) if b"\\" in text else text
    return b"" if text[0] == ord(",") else b"null"


def _mend_escape(match: re.Match[bytes]) -> bytes:
    if match.group(2):
        return rb"\ufffd"  # half a surrogate pair
    return rb"\\" if match.end() == match.start() + 1 else match.group()
