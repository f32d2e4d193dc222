"""URLs in place of paths."""

from __future__ import annotations

import re
from os import PathLike

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}(?!/)(.+)")
"""At least two letters before the colon: one is a Windows drive. Path reduces several slashes to one."""


def url_of(path: str | PathLike[str]) -> str | None:
    """Return the URL that a path contains, or None if it is a path."""
    match = _URL.fullmatch(str(path))
    if match is None:
        return None
    root = "/" if match[1].lower() == "file" else ""  # file URLs have no host, and an absolute path
    return f"{match[1].lower()}://{root}{match[2].rstrip('/')}"


def local_path(url: str) -> str | None:
    """Return the path of a file:// URL, or None for other URLs."""
    if not url.startswith("file://"):
        return None
    from urllib.request import url2pathname  # imports http and ssl, which other commands do not need

    return url2pathname(url.removeprefix("file://"))


def is_remote(path: str | PathLike[str]) -> bool:
    """Whether a path is a URL."""
    return url_of(path) is not None


def as_given(path: str | PathLike[str]) -> str:
    """Return a path or URL as the user wrote it."""
    return url_of(path) or str(path)
