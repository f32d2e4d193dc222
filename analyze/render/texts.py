"""Escape, shorten and wrap text of recordings.

Widths are in terminal cells: a wide (CJK) character takes two, a combining one none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len

# C0 and C1 controls, bidirectional controls, line separators, and lone surrogates, which stand for invalid UTF-8.
UNSEEN = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ESCAPED = re.compile(f"[{UNSEEN}]")

SENTENCES = ("advice", "evidence", "guard", "impact", "question", "reason", "title", "try", "value", "warnings")
"""Columns with sentences: they are wrapped, not shortened."""
CUT = "…"
BETWEEN = " > "
"""Separator of the names of a path."""

# A C++ function with its template or call arguments, as kernels are named.
_CPP = re.compile(r"(?:void )?[A-Za-z_][\w:~]*(?:\(anonymous namespace\)::[\w:~]*)*[<(]")
_WORTH = 4
"""Least length of a common prefix that is worth removing."""
_MARK = 6
"""Most cells for the number of a text (`~12`)."""
_INDENT = re.compile(r" *")
# Not those of `->` and of operators such as <<.
_BRACKET = re.compile(r"->|operator *(?:<=>|<<=?|>>=?|[<>]=?)|([<(\[{])|([>)\]}])")
_CUTS = re.compile(f"{CUT}+")
_OPENS = {">": "<", ")": "(", "]": "[", "}": "{"}
_NAME = 4096
"""Characters up to which brackets of a name are looked at."""
# Input shapes end with those of scalars, which are empty.
_NO_SHAPES = re.compile(r"(?<!, \[\])(?<=\]), \[\](?:, \[\])*\]$")


def visible(text: str, pattern: re.Pattern[str] = _ESCAPED) -> str:
    """Return text with control and invisible characters escaped."""
    return text if text.isascii() and text.isprintable() else pattern.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {9: r"\t", 10: r"\n", 13: r"\r"}.get(code, f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def width(text: str) -> int:
    """Return the width of a text."""
    # Fast path: most text is ASCII except for the ellipsis.
    return len(text) if text.isascii() or text.replace(CUT, "").isascii() else cell_len(text)


def padded(text: str, cells: int, right: bool) -> str:
    """Return the text padded to a width."""
    blanks = " " * (cells - width(text))
    return blanks + text if right else text + blanks


def _head(text: str, cells: int) -> str:
    """Return the longest prefix that fits."""
    if text.isascii():
        return text[:cells]
    end = min(len(text), cells)
    while end and width(text[:end]) > cells:
        end -= 1
    while end < len(text) and width(text[: end + 1]) <= cells:
        end += 1
    return text[:end]


def _tail(text: str, cells: int) -> str:
    """Return the longest suffix that fits and does not start with a combining character."""
    if text.isascii():
        return text[max(0, len(text) - cells) :]
    start = max(0, len(text) - cells)
    while start < len(text) and (width(text[start:]) > cells or width(text[start]) == 0):
        start += 1
    return text[start:]


def middle(text: str, cells: int) -> str:
    """Return the text with its middle removed to fit a width: both ends of a name matter."""
    if width(text) <= cells:
        return text
    tail = (cells - 1) * 2 // 5
    head = _head(text, cells - 1 - tail)
    return head + CUT + _tail(text, cells - 1 - width(head))


def middle_of_name(name: str, cells: int) -> str:
    """Return a name with parts removed to fit a width, so that every bracket keeps its partner."""
    if width(name) <= cells:
        return name
    room = cells - 2
    if room >= _WORTH * 2 and (opens := _opens_at(name)):
        # Template arguments at the end get at least half of the room, call arguments a quarter.
        head, inner = name[:opens], name[opens + 1 : -1]
        of_inner = min(width(inner), max(room - width(head), room // (4 if name[-1] == ")" else 2)))
        shorter = middle_of_name(head, room - of_inner), middle_of_name(inner, of_inner)
        return shorter[0] + name[opens] + shorter[1] + name[-1]
    return balanced(middle(name, cells), name)


def balanced(text: str, name: str) -> str:
    """Return a shortened name with an ellipsis for each bracket whose partner was removed."""
    wrong = _without_partner(text)
    if not wrong or (len(name) <= _NAME and _without_partner(name)):
        return text
    return _CUTS.sub(CUT, "".join(CUT if at in wrong else char for at, char in enumerate(text)))


def _without_partner(text: str) -> set[int]:
    """Return where brackets are that have no partner."""
    opened: list[int] = []
    wrong = set()
    for found in _BRACKET.finditer(text):
        if found[1]:
            opened.append(found.start())
        elif found[2]:
            partner = _OPENS[found[2]]
            if partner not in (text[at] for at in opened):
                wrong.add(found.start())
                continue
            while text[at := opened.pop()] != partner:
                wrong.add(at)
    return wrong | {*opened}


def _opens_at(name: str) -> int:
    """Return where the bracket opens that the last character closes; 0 if there is none."""
    if not name or name[-1] not in _OPENS or len(name) > _NAME:
        return 0
    opened: list[int] = []
    at = 0
    for found in _BRACKET.finditer(name):
        if found[1]:
            opened.append(found.start())
        elif found[2]:
            at = opened.pop() if opened else 0
    return at if name[at] == _OPENS[name[-1]] else 0


def wrapped(text: str, cells: int) -> list[str]:
    """Return the text as lines of at most `cells`, broken at spaces if possible."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width(joined) <= cells:
            line = joined
            continue
        if line:
            lines.append(line)
        while width(word) > cells:
            piece = _head(word, cells) or word[0]
            lines.append(piece)
            word = word[len(piece) :]
        line = word
    return [*lines, line]


def hanging(text: str, cells: int) -> str:
    """Wrap each line of a text and keep its indent."""
    lines = []
    for line in text.splitlines():
        indent = _INDENT.match(line)[0]  # type: ignore[index]
        lines += [indent + part for part in wrapped(line[len(indent) :], max(cells - len(indent), 20))]
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    """Return the text with short names for C++ names (each one in a path), and shapes without those of scalars."""
    if text.startswith("[["):
        return _NO_SHAPES.sub(f", {CUT}]", text)
    indent = _INDENT.match(text)[0]  # type: ignore[index]
    parts = _names(text[len(indent) :])
    if not any(map(_CPP.match, parts)):
        return text
    from schemas.kernel_rules import classify

    return indent + BETWEEN.join(classify(part).short_name if _CPP.match(part) else part for part in parts)


def _names(path: str) -> list[str]:
    """Return the names of a path. `> >` in a C++ name separates none."""
    names: list[str] = []
    opened = 0
    for part in path.split(BETWEEN):
        if opened > 0:
            names[-1] += BETWEEN + part
            opened -= 1
        else:
            names.append(part)
            opened = 0
        opened += part.count("<") - part.count(">") + part.count("->")
    return names


def _cut(text: str, cells: int) -> str:
    """Shorten a text to a width: a path loses names in its middle first, a tree keeps its indent."""
    if width(text) <= cells:
        return text
    indent = len(_INDENT.match(text)[0])  # type: ignore[index]
    if indent:
        kept = min(indent, cells // 2)
        return " " * kept + _cut(text[indent:], cells - kept)
    first, *rest = _names(text)
    for start in range(1, len(rest)):
        for head in (first + BETWEEN, ""):
            shorter = BETWEEN.join([head + CUT, *rest[start:]])
            if width(shorter) <= cells:
                return shorter
    return middle_of_name(text, cells)


def fitted(values: Iterable[str], cells: int) -> dict[str, str]:
    """Return the shortened form of each text; different texts stay different from about 8 cells on.

    Long kernel names become short names; then the middle is removed. If that makes two texts equal, the part that
    differs is shown, or they are numbered.
    """
    distinct = list(dict.fromkeys(values))
    shown = {v: v for v in distinct if width(v) <= cells}
    taken = set(shown)
    long = [v for v in distinct if v not in shown]
    short = {v: _short(v) for v in long}
    for source in (short, {v: v for v in long}):
        cut = {v: _cut(source[v], cells) for v in long if v not in shown}
        for alike in _by_text(cut).values():
            found = {v: cut[v] for v in alike} if len(alike) == 1 else _differences(alike, source, short, cells)
            for text, (value, *others) in _by_text(found).items():
                if not others and text not in taken:
                    shown[value] = text
                    taken.add(text)
    # Number texts that look the same in one sequence: there may be thousands.
    numbers: Counter[str] = Counter()
    for v in long:
        while v not in shown:
            alone = middle_of_name(short[v], max(1, cells - _MARK))
            numbers[alone] += 1
            text = _numbered(short[v], numbers[alone], cells)
            if text not in taken:
                shown[v] = text
                taken.add(text)
    return shown


def _by_text(shown: dict[str, str]) -> dict[str, list[str]]:
    """Return the values by their shortened text."""
    values: dict[str, list[str]] = {}
    for value, text in shown.items():
        values.setdefault(text, []).append(value)
    return values


def _differences(alike: Sequence[str], source: dict[str, str], short: dict[str, str], cells: int) -> dict[str, str]:
    """Return texts that are equal when shortened as their start and the part that differs."""
    texts = [source[v] for v in alike]
    start = _alike_up_to(texts)
    end = _alike_up_to([t[start:][::-1] for t in texts])
    found = {}
    for value, text in zip(alike, texts, strict=True):
        # With two characters around it, for context.
        different = _head(text[max(0, start - 2) : len(text) - max(0, end - 2)], cells // 2)
        found[value] = balanced(_head(short[value], cells - width(different) - 1) + CUT + different, value)
    return found


def _numbered(text: str, number: int, cells: int) -> str:
    mark = f"~{number}"
    return middle_of_name(text, max(1, cells - len(mark))) + mark


def _alike_up_to(texts: Collection[str]) -> int:
    """Return the length of the common prefix of all texts: that of the first and last in order."""
    low, high = min(texts), max(texts)
    return next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def common_beginning(ids: Collection[str]) -> str:
    """Return the common prefix of several ids up to a separator; empty if it is short."""
    if len(set(ids)) < 2:
        return ""
    prefix = min(ids)[: _alike_up_to(ids)]
    end = max((m.end() for m in re.finditer(r"[-_./]", prefix)), default=0)
    return prefix[:end] if end >= _WORTH else ""
