"""Recover events from a damaged JSON list: the complete ones, and the number of lost ones.

Only for bytes that cannot be decoded; sound files do not need it. Two facts make recovery linear: JSON is so strict
that damage shows within a token or two; and `{"ph":` with bare quotes cannot be part of a string, so the next event is
found whatever happened to brackets and quotes before it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import NamedTuple

import msgspec

from analyze.sources.chrome.json_repair import EVENT_START, LONGEST_REPAIR, STRING, repair

LONGEST_EVENT = 16 << 20
"""Limit in bytes, also of what is between two events."""
LONGEST_AROUND = 8 << 20
"""Limit in bytes of what is before and after the events of a trace."""

MALFORMED = "malformed"
TOO_LONG = f"longer than {LONGEST_EVENT >> 20} MiB"
TOO_DEEP = "nested too deeply"
OTHER_TRACE = "of another trace in the same file"
OUTSIDE = "outside the list of events"

_TOKEN = re.compile(STRING + rb'|"|[{\[]+|[}\]]+', re.DOTALL)  # brackets in runs: there are files of nothing else
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_GOES_ON = re.compile(EVENT_START.pattern + rb"|" + _EVENTS_KEY.pattern)
_AFTER_DEEP = re.compile(rb"\}\s*,\s*(?=\{)")
_PH = re.compile(rb'"ph"\s*:')
_GAP = re.compile(rb"[ \t\r\n,]*")
_SPACE = re.compile(rb"[ \t\r\n]*")
_BRACKETS = re.compile(rb"[}\[:]*")
_BEGUN = re.compile(rb"\{[\s,:]*[^\s\[\]{},:]")
_LIST_END = re.compile(rb'\]\s*(?=,\s*"|\}\s*\Z|\Z)')
_LIST_ENDS_TRIED = 256
_REPAIR_TRIES = 4
_FIRST_WINDOW = 16 << 10
_WINDOW_EDGE = 16
_LOOK_BACK = 64


def _no_value(_: object) -> None:
    return None


_value_at = json.JSONDecoder(
    strict=False, parse_int=_no_value, parse_float=_no_value, parse_constant=_no_value
).raw_decode


def count_events(data: bytes, at: int = 0, on: int | None = None) -> int:
    """Count the events that begin between two positions, by their `"ph":`."""
    end = len(data) if on is None else on
    return sum(m.start() < end for m in _PH.finditer(data, at, end + _LOOK_BACK))


def find_trailer(data: bytes) -> int:
    """Find the `]` that ends the list of events, in the end of a file; -1 if there is none.

    It is the first `]` after which only the rest of the object follows.
    """
    found = -1
    for match in reversed(list(_LIST_END.finditer(data))[-_LIST_ENDS_TRIED:]):
        if parse_trailer(data[match.end() :]) is not None:
            found = match.start()
    return found


def parse_trailer(data: bytes) -> dict[str, msgspec.Raw] | None:
    """Parse the members of the object after its list of events, `, "a": 1}`; None if it is something else."""
    text = data.strip(b" \t\r\n")
    if not text:
        return {}
    try:
        return msgspec.json.decode(b"{" + text.removeprefix(b","), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class _Value(NamedTuple):
    """A JSON object: `end` is the position after it, or -1; then `problem` is where it is malformed."""

    end: int
    problem: int = 0
    reason: str = MALFORMED
    unfinished: bool = False
    """The data ended inside it."""


class Scanner:
    """Finds the events in the bytes after `"traceEvents": [`, which are fed in pieces.

    `lost` counts lost events by reason: skipped bytes count as the events that begin in them (by their `"ph":`; one if
    they begin like an event). Time is linear in the bytes, memory is bounded.
    """

    def __init__(self, in_object: bool) -> None:
        self.lost: Counter[str] = Counter()
        self.ended = False
        """Whether the list of events was closed."""
        self.trailer = bytearray()
        """The bytes after the list in its object."""
        self.stray = False
        """Whether there was something else between the events: brackets, numbers."""
        self.lists = 1
        """Number of lists of events in this trace."""
        self.other_trace = False
        """Whether another trace that follows the first one is being read."""
        self.long_trailer = False
        self._in_object = in_object
        self._rest = b""
        self._skipping: str | None = None  # the reason, while unreadable bytes are skipped
        self._skipped_events = self._skipped_least = 0
        self._in_list = True
        self._depth = 0
        self._around = 0
        self._closed = not in_object  # the first trace has ended

    @property
    def ready(self) -> bool:
        """Whether the next bytes begin between two events of the list."""
        return self._in_list and not self._skipping and not self._rest

    def feed(self, data: bytes, at_end: bool = False) -> list[bytes]:
        """Return the complete events in the next bytes. `at_end`: these are the last; an unfinished event is lost."""
        data = self._rest + data
        self._rest = b""
        text = data.decode("latin-1")  # one character a byte
        events: list[bytes] = []
        at = 0
        while at < len(data):
            if self._skipping:
                on = self._skip(data, text, at, at_end)
            elif self._in_list:
                on = self._step(data, text, at, at_end, events)
            else:
                on = self._pass_by(data, at, at_end)
            if on is None:
                self._rest = data[at:]
                break
            at = on
        if at_end:
            self._stop_skipping()
        return events

    def _step(self, data: bytes, text: str, at: int, at_end: bool, events: list[bytes]) -> int | None:
        """Read an event, the end of the list or an unexpected byte; return the next position. None: needs more data."""
        at = _behind(_GAP, data, at)
        if at == len(data):
            return at
        byte = data[at]
        if byte == ord("]"):
            return self._closing(data, at, at_end)
        if byte in b"}[:":
            self.stray = True
            return _behind(_BRACKETS, data, at)
        if byte != ord("{"):
            return self._start_skipping(MALFORMED, data, at, at + 1)
        value = _event(data, text, at, at_end)
        if value.end < 0 and value.unfinished and not at_end and len(data) - at <= LONGEST_EVENT:
            return None
        if value.end < 0:
            return self._start_skipping(value.reason, data, at, _go_on(data, at, value))
        if self.other_trace:
            self.lost[OTHER_TRACE] += 1
        else:
            events.append(data[at : value.end])
        return value.end

    def _closing(self, data: bytes, at: int, at_end: bool) -> int | None:
        """Read a `]` in the list: the end of the list unless events follow."""
        behind = _behind(_SPACE, data, at + 1)
        comma = data[behind : behind + 1] == b","
        if comma:
            behind = _behind(_SPACE, data, behind + 1)
        if behind == len(data) and not at_end:
            return None
        follows = data[behind : behind + 1]
        if (follows != b'"' or not self._in_object) if comma else follows == b"]" or EVENT_START.match(data, behind):
            self.stray = True
            return at + 1
        self.ended, self._in_list = True, False
        self._depth = int(self._in_object)
        return at + 1

    def _start_skipping(self, reason: str, data: bytes, at: int, on: int) -> int:
        self._skipping, self._skipped_events = reason, 0
        self._skipped_least = int(_BEGUN.match(data, at) is not None)
        return self._note_skipped(data, at, on)

    def _note_skipped(self, data: bytes, at: int, on: int) -> int:
        self._skipped_events += count_events(data, at, on)
        return on

    def _stop_skipping(self) -> None:
        if self._skipping and (lost := max(self._skipped_least, self._skipped_events)):
            self.lost[OTHER_TRACE if self.other_trace else self._skipping] += lost
        elif self._skipping:
            self.stray = True
        self._skipping = None

    def _skip(self, data: bytes, text: str, at: int, at_end: bool) -> int | None:
        """Skip unreadable bytes up to the next event or list of events."""
        match = _GOES_ON.search(data, at)
        if match is None:
            if not at_end:
                if len(data) - at <= LONGEST_EVENT:
                    return None
                return self._note_skipped(data, at, len(data) - _LOOK_BACK)
            end = find_trailer(data[at:])
            if end < 0:
                return self._note_skipped(data, at, len(data))
            self._note_skipped(data, at, at + end)
            self._stop_skipping()
            return at + end
        if match.start() > at:
            return self._note_skipped(data, at, match.start())
        if data[at] == ord('"'):
            self._stop_skipping()
            self._next_list(same_trace=False)
            return match.end()
        value = _event(data, text, at, at_end)
        if value.end < 0 and value.unfinished and not at_end and len(data) - at <= LONGEST_EVENT:
            return None
        if value.end < 0:
            on = _go_on(data, at, value)
            if not count_events(data, at, max(on, value.problem)):
                return self._note_skipped(data, at, on)
            self._stop_skipping()
            return self._start_skipping(value.reason, data, at, on)
        if not count_events(data, at, value.end):  # an object inside the skipped event
            return self._note_skipped(data, at, value.end)
        self._stop_skipping()
        return at

    def _next_list(self, same_trace: bool) -> None:
        self.ended, self._in_list = False, True
        self.other_trace = self.other_trace or not same_trace
        self.lists += not self.other_trace
        self.trailer = self.trailer.rstrip(b" \t\r\n,")

    def _pass_by(self, data: bytes, at: int, at_end: bool) -> int | None:
        """Read bytes after the list: the rest of the trace's object, or another list of events."""
        for token in _TOKEN.finditer(data, at) if not self.long_trailer else ():
            start, first = token.start(), data[token.start()]
            if first == ord('"'):
                short = token.end() - start == 1 or len(data) - token.end() < _LOOK_BACK
                if short and not at_end and len(data) - start <= LONGEST_AROUND:
                    return self._keep(data, at, start) if start > at else None
                match = _EVENTS_KEY.match(data, start) if self._depth == 1 else None
                if match:
                    self._keep(data, at, start)
                    self._next_list(same_trace=not self._closed)
                    return match.end()
            elif first in b"]}":
                if self._depth + _run(data, token) <= 0 and not self._closed:
                    at = self._keep(data, at, start + self._depth)
                    self._closed = True
                self._depth = max(0, self._depth + _run(data, token))
            elif self._depth:
                self._depth += _run(data, token)
            elif first == ord("{") and EVENT_START.match(data, start):
                self._keep(data, at, start)
                self.stray, self.ended, self._in_list = True, False, True
                return start
            elif first == ord("["):
                self._keep(data, at, start)
                self._next_list(same_trace=False)
                return start + 1
            else:
                self._depth, self._closed = _run(data, token), True
        return self._keep(data, at, len(data))

    def _keep(self, data: bytes, at: int, on: int) -> int:
        """Record bytes before or after the lists of events."""
        lost = count_events(data, at, on)
        if lost:
            self.lost[OTHER_TRACE if self.other_trace else OUTSIDE] += lost
        self._around += on - at
        if not self._closed and not self.long_trailer:
            self.trailer += data[at:on]
        self.long_trailer = self._around > LONGEST_AROUND
        return on


def _behind(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = pattern.match(data, at)
    return match.end() if match else at


def _go_on(data: bytes, at: int, value: _Value) -> int:
    """Return where to look for the next event after an unreadable one."""
    if value.reason != TOO_DEEP:
        return max(at + 1, value.problem - _LOOK_BACK)
    match = _AFTER_DEEP.search(data, at)
    return match.end() if match else len(data)


def _event(data: bytes, text: str, at: int, at_end: bool) -> _Value:
    """Find the object that begins at a position; repair it if needed."""
    value = _object(text, at)
    if value.end >= 0 or value.reason != MALFORMED or (value.unfinished and not at_end):
        return value
    limit = value.problem
    for _ in range(_REPAIR_TRIES):
        match = EVENT_START.search(data, limit, at + LONGEST_REPAIR)
        limit = match.start() if match else min(len(data), at + LONGEST_REPAIR)
        end = _brackets_end(data, at, limit)
        fixed = repair(data[at:end]) if end > 0 else b""
        if fixed and _object(fixed.decode("latin-1"), 0).end == len(fixed):
            return _Value(end)
        if match is None:
            break
        limit += 1
    return value


def _brackets_end(data: bytes, at: int, limit: int) -> int:
    """Return the position after the matching closing bracket; -1 if it is not before the limit."""
    depth = 0
    for token in _TOKEN.finditer(data, at, limit):
        run = _run(data, token)
        if run < 0 and depth + run <= 0:
            return token.start() + depth
        depth += run
    return -1


def _run(data: bytes, token: re.Match[bytes]) -> int:
    """Return by how much a token changes the depth of brackets; 0 for a string."""
    first = data[token.start()]
    return (token.end() - token.start()) * ((first in b"{[") - (first in b"}]"))


def _object(text: str, at: int) -> _Value:
    """Find the JSON object that begins at a position."""
    window = _FIRST_WINDOW
    while True:
        piece = text[at : at + window]
        all_there = at + window >= len(text)
        try:
            return _Value(at + _value_at(piece)[1])
        except json.JSONDecodeError as e:
            problem, unfinished = e.pos, e.msg.startswith("Unterminated")
        except RecursionError:
            return _Value(-1, at, TOO_DEEP)
        unfinished = unfinished or problem >= len(piece) - _WINDOW_EDGE
        if not unfinished or all_there:
            return _Value(-1, at + problem, MALFORMED, unfinished)
        if window >= LONGEST_EVENT:
            return _Value(-1, at + problem, TOO_LONG)
        window = min(8 * window, LONGEST_EVENT)


def events_list(data: bytes) -> re.Match[bytes] | None:
    """Find the beginning of the list of events in the first bytes of an object."""
    depth = 0
    for token in _TOKEN.finditer(data):
        depth += _run(data, token)
        match = _EVENTS_KEY.match(data, token.start()) if depth == 1 else None
        if match:
            return match
    return None
