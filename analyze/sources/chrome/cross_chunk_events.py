"""Events that need more than their chunk: begin and end events ("B", "E"), and merged traces of several processes.

Tools that merge traces of several ranks mark the rank of each event: SGLang by a label before its pid
(`[TP01-DP00] 5001`), TraceFusion by `args.rank`. External ids and correlation ids are per process, so each process
becomes a rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation

from msgspec import Raw

from analyze.sources.chrome.category_batches import phase_label
from analyze.sources.chrome.events import Event, Tally
from analyze.sources.chrome.json_events import TraceFile
from analyze.sources.remote import RawPath

HALVES = ("B", "E")
_LABEL = re.compile(r"\[([^\]]{1,100})\] ?(-?[0-9]{1,18})")
_LABELS = re.compile(rb'"pid"\s*:\s*"\[([^\]"\\]{1,100})\] ?-?[0-9]{1,18}"')
_RANKS = re.compile(rb'"args"\s*:\s*\{(?:[^{}"]|"[^"\\]*")*?"rank"\s*:\s*"?([0-9]{1,6})\b')
_COMPLETE = re.compile(rb'"ph"\s*:\s*"X"')
_PART = re.compile(r"(?<![A-Za-z_])([A-Za-z_]{1,64})[-_ ]?([0-9]{1,6})")
_ORDER = ("pp", "dp", "tp", "ep")
"""Order of the dimensions of a job: neighbouring ranks are tensor parallel."""
_MOST = 1 << 16
"""Limit of processes of a file."""


class Processes:
    """The processes of a merged file and their ranks."""

    def __init__(self, ranks: dict[str, int], guessed: bool = False) -> None:
        self.ranks = ranks
        """By label; empty if events have their rank in `args`."""
        self.guessed = guessed
        """Whether no number in the labels is distinct, so that ranks are numbered in the order of the labels."""

    def split(self, events: Iterable[Event]) -> dict[int | None, list[Event]]:
        """Group events by rank (None: unknown) and remove the labels of their pids."""
        found: defaultdict[int | None, list[Event]] = defaultdict(list)
        for e in events:
            rank = None
            if self.ranks and isinstance(e.pid, str) and (match := _LABEL.fullmatch(e.pid)):
                rank, e.pid = self.ranks.get(match[1]), int(match[2])
            elif not self.ranks and e.args and (text := bytes(e.args.rank).strip(b'"')).isdigit() and len(text) < 7:
                rank = int(text)
            found[rank].append(e)
        return found


def processes_of(trace: TraceFile) -> Processes | None:
    """Return the processes of a merged file; None for one process. Reads it only if its beginning looks merged."""
    head = trace.peek()
    if _LABELS.search(head):
        labels = _found(trace.path, _LABELS)[0]
        return _by_label([label.decode("utf-8", "replace") for label in labels])
    if _RANKS.search(head):
        ranks, events, complete = _found(trace.path, _RANKS)
        # In a merged file, nearly all events have a rank; other events may have an argument of this name.
        return Processes({}) if len({int(r) for r in ranks}) > 1 and 2 * events > complete else None
    return None


def _found(path: RawPath, pattern: re.Pattern[bytes]) -> tuple[list[bytes], int, int]:
    """Return the distinct values of a pattern in a file, its number of matches, and the number of complete events."""
    trace = TraceFile(path)
    values: dict[bytes, None] = {}
    n = complete = 0
    try:
        for data in trace.chunks():
            complete += len(_COMPLETE.findall(data))
            for match in pattern.finditer(data):
                n += 1
                if len(values) < _MOST:
                    values.setdefault(match[1])
    finally:
        trace.close()
    return list(values), n, complete


def _by_label(labels: list[str]) -> Processes | None:
    if len(labels) < 2:
        return None
    numbers = [{name.lower(): int(number) for name, number in _PART.findall(label)} for label in labels]
    for name in dict.fromkeys(("rank", "tp", *numbers[0])):
        own = [n[name] for n in numbers if name in n]
        if len(set(own)) == len(labels):
            return Processes(dict(zip(labels, own, strict=True)))
    places = sorted(range(len(labels)), key=lambda i: ([numbers[i].get(name, 0) for name in _ORDER], labels[i]))
    return Processes({labels[i]: rank for rank, i in enumerate(places)}, guessed=True)


class Halves:
    """Joins begin and end events of a thread, in the order of the file."""

    def __init__(self) -> None:
        self._open: defaultdict[tuple[int | str | None, int | str | None], list[Event]] = defaultdict(list)

    def join(self, events: Iterable[Event], tally: Tally) -> Iterator[Event]:
        """Yield complete events: others unchanged, and one for each pair. Count ends without a begin in `tally`."""
        for e in events:
            if e.ph not in HALVES:
                yield e
                continue
            stack = self._open[e.pid, e.tid]
            if e.ph == "B":
                stack.append(e)
                continue
            place = next((i for i in reversed(range(len(stack))) if e.name in ("", stack[i].name)), None)
            if place is None:
                tally.unread[phase_label(e)] += 1
                continue
            begun = stack.pop(place)
            begun.ph, begun.dur, begun.args = "X", _length(begun.ts, e.ts), begun.args or e.args
            tally.events += 1  # two events, one row
            yield begun

    def count_unended(self, tally: Tally) -> None:
        """Count begin events without an end."""
        tally.unread.update(phase_label(begun) for stack in self._open.values() for begun in stack)


def _length(start: Raw, end: Raw) -> Raw:
    """Return the difference of two times as decimal text; empty if one is not a number."""
    try:
        first, last = (Decimal(bytes(t).strip(b'"').decode("ascii")) for t in (start, end))
        return Raw(format(last - first, "f").encode())
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return Raw(b"")
