"""Check values that a file may give in any type: numbers and texts, else None."""

from __future__ import annotations

from schemas.option_declaration import LARGEST_INT64


def whole(value: object, largest: int = LARGEST_INT64) -> int | None:
    """Return a number of the file; None for another value, and for one out of range."""
    return value if type(value) is int and 0 <= value <= largest else None


def text(value: object) -> str | None:
    """Return a text of the file; None for another value."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None
