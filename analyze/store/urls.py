"""URLs that are given where a path may be."""

from __future__ import annotations

import re
from os import PathLike

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?!/)(.+)")
"""Two letters at least before the colon: one is a drive of Windows. Path takes one of two slashes away."""


def url_of(path: str | PathLike[str]) -> str | None:
    """The URL that a path stands for, or None if it is a path."""
    match = _URL.fullmatch(str(path))
    return f"{match[1].lower()}://{match[2].rstrip('/')}" if match else None


def is_remote(path: str | PathLike[str]) -> bool:
    """Whether a path is a URL."""
    return url_of(path) is not None
