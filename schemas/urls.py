"""URLs that are given where a path may be."""

from __future__ import annotations

import re
from os import PathLike

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}(?!/)(.+)")
"""Two letters at least before the colon: one is a drive of Windows. Path leaves one slash of several."""


def url_of(path: str | PathLike[str]) -> str | None:
    """The URL that a path stands for, or None if it is a path."""
    match = _URL.fullmatch(str(path))
    if match is None:
        return None
    root = "/" if match[1].lower() == "file" else ""  # there a URL names no host, and then a path from the root on
    return f"{match[1].lower()}://{root}{match[2].rstrip('/')}"


def local_path(url: str) -> str | None:
    """The path that a URL of this machine (file://) names, or None for one of another."""
    if not url.startswith("file://"):
        return None
    from urllib.request import url2pathname  # with http and ssl, which no other command needs

    return url2pathname(url.removeprefix("file://"))


def is_remote(path: str | PathLike[str]) -> bool:
    """Whether a path is a URL."""
    return url_of(path) is not None


def as_given(path: str | PathLike[str]) -> str:
    """A path or URL as the user wrote it."""
    return url_of(path) or str(path)
