"""What the messages of Dynamo say: why a graph broke, which guard failed, and where in the program."""

from __future__ import annotations

import json
import re
from typing import Any

_FRAME = re.compile(r'\n[ \t]{0,20}File "(.{0,1000})", line (\d{1,9}), in (.*)')
_PLACE = re.compile(r"Graph break(?: in user code at|: from user code at:?) ?(.+):(\d{1,9})$")
_FAILED_GUARD = re.compile(r"(!?[\d/]{1,40}): (.*)", re.DOTALL)
_EXPLAINED = re.compile(r"\n[ \t]{0,20}(?:Explanation|Hint|Developer debug context):")
_LISTED = re.compile(
    r"\n[ \t]{0,20}(Explanation|Hint): (.*?)"
    r"(?=\n[ \t]{0,20}(?:Explanation|Hint|Developer debug context):|\n[ \t]{0,20}\n|\Z)",
    re.S,
)


def frames(stack: str) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame of a Python traceback, outermost first."""
    return [(file, int(line), function) for file, line, function in _FRAME.findall("\n" + stack)]


def reason_of(said: str) -> str:
    """Return the reason in a message, without its explanation and hints."""
    return _EXPLAINED.split(said, maxsplit=1)[0].strip()


def graph_break(message: str) -> dict[str, Any]:
    """Return the columns of `graph_breaks` on the reason and the place."""
    head, _, stack_text = message.partition("User code traceback:")
    stack = frames((stack_text or head).split("\nTraceback (most recent call last)")[0])
    reason = head.partition("Graph Break Reason: ")[2] or head.partition("Reason: ")[2] or head
    listed = _LISTED.findall("\n" + head)
    where = _PLACE.match(head.split("\n")[0])
    file, line, function = stack[-1] if stack else (where[1], int(where[2]), None) if where else (None, None, None)
    return {
        # The first of two paragraphs says which bytecode.
        "reason": reason_of(reason).rpartition("\n\n")[2] or None,
        "explanation": next((said.strip() for kind, said in listed if kind == "Explanation"), None),
        "hint": next((said.strip() for kind, said in listed if kind == "Hint"), None),
        "file": file,
        "line": line,
        "function": function,
        "stack": json.dumps(stack) if stack else None,
    }


def failed_guard(said: str) -> tuple[str | None, str]:
    """Return whose guard failed, if the message says it, and the guard."""
    found = _FAILED_GUARD.match(said.strip())
    return (found[1], found[2].strip()) if found else (None, said.strip())
