"""Parse numbers that Nsight Compute printed in the language of the system.

1,234.5 in English, 1.234,5 in German, 1 234,5 in French, 1'234.5 in Switzerland, 12,34,567.8 in India. Most numbers are
unambiguous; `1.234` is not.
"""

from __future__ import annotations

import re

_SPACES = " \u00a0\u2009\u202f'\u2019"
"""Group marks that are never decimal marks: spaces (plain, no-break, thin) and apostrophes."""


def _form(decimal: str, group: str) -> re.Pattern[str]:
    grouped = rf"[1-9][0-9]{{0,2}}(?P<mark>[{group}{_SPACES}])[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*"
    indian = rf"|[1-9][0-9]?(?:{group}[0-9]{{2}})+{group}[0-9]{{3}}" if group == "," else ""
    number = rf"[-+]?(?:{grouped}{indian}|[0-9]+)(?:{re.escape(decimal)}[0-9]+)?(?:[eE][-+]?[0-9]{{1,3}})?"
    # With --print-metric-instances, the values of the instances follow in brackets.
    return re.compile(rf"({number})(?:\s*[({{].*)?\Z", re.DOTALL)


_FORMS = {".": _form(".", ","), ",": _form(",", ".")}
_GROUPS = {decimal: str.maketrans(dict.fromkeys(("," if decimal == "." else ".") + _SPACES)) for decimal in _FORMS}


def digits(text: str, decimal: str) -> str | None:
    """Return a printed number in Python's notation, given the decimal mark; None if it is not a number."""
    match = _FORMS[decimal].match(text)
    return match.group(1).translate(_GROUPS[decimal]).replace(",", ".") if match else None


def decimal_mark(text: str) -> str | None:
    """Return the decimal mark of a printed number: "" if it has the same value with both, "?" if it is ambiguous.

    Returns None if it is not a number.
    """
    point, comma = digits(text, "."), digits(text, ",")
    if point == comma:
        return None if point is None else ""
    if point is None or comma is None:
        return "," if point is None else "."
    return "?"
