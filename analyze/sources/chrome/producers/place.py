"""Where an event of a Chrome trace happened, by the names of its process and thread."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from analyze.sources.chrome.events import Args, Event

DERIVED = "Trace"
"""A category without a table: rows that the producer computed from others."""


class Place(NamedTuple):
    """The process and thread of an event."""

    process: str = ""
    thread: str = ""
    number: int | None = None
    """Number of the device, where its name has none."""
    has_streams: bool = False
    """Whether its process has threads that are named as streams."""


def args_of(event: Event) -> Args:
    """Return the arguments of an event, to change them."""
    if event.args is None:
        event.args = Args()
    return event.args


def text_of(raw: Raw) -> str:
    """Return the text of an argument; empty if it is missing or of another type."""
    data = bytes(raw)
    return data[1:-1].decode("utf-8", "replace") if data[:1] == b'"' else ""


def whole_of(raw: Raw) -> int | None:
    """Return the number of an argument, also if it is a text."""
    return whole(bytes(raw).strip(b'"'))


def whole(digits: str | bytes) -> int | None:
    """Return the number of some digits; None if they are something else, or too many for int64."""
    return int(digits) if digits.isdigit() and len(digits) < 19 else None


def sizes_of(text: str | None, separator: str) -> list[int] | None:
    """Return the numbers of a grid or block, such as 32,1,1."""
    numbers = [n.strip() for n in (text or "").split(separator)]
    return [*map(int, numbers)] if all(n.isdigit() and len(n) < 10 for n in numbers) else None
