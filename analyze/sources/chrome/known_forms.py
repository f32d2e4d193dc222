"""Learn the forms of events: the row of each form, and which columns take which number of an event.

Two sample events of each form, with marker numbers in place of its numbers, go through the JSON decoder and `tables`. A
column in which both rows show their marker takes that number of each event; all others are constant for the form.
Therefore the rows equal those of the JSON decoder, whatever the layout of the file and the version of Kineto.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from analyze.sources.chrome.arrow_columns import concat
from analyze.sources.chrome.category_columns import CATEGORIES
from analyze.sources.chrome.events import Args, Event, Tally, decode_event
from analyze.sources.chrome.tables import by_category, category_batch

_GONE = re.compile(rb'": ?+-?+(?=[,}\s])')
"""The end of a key whose number was cut out: nothing follows the colon."""
_MARKS = (1_000_000, 2_000_000)
"""Markers of the first number of a form; that of the next is one more. They fit into every column."""
NO_MARK, _UNCLEAR = -1, -2
"""In place of the index of a number: a column takes no number, or it is unclear which."""
TIMES = ("start_ns", "dur_ns")
"""Columns whose numbers are us in the text."""
_LOOKED_UP = "memory_device_type"
"""The only number that is looked up instead of copied to its column."""


class Form(NamedTuple):
    """What is known of the events with a text."""

    ph: str
    cat: str
    name: str
    numbers: int
    """How many numbers each event has."""
    integers: tuple[int, ...]
    """Indices of numbers that must be integers but are in no column."""
    row: int = -1
    """Its row in the `FormRows` of its table; -1 if it has no table."""
    tally: Tally | None = None
    """The counts of each event; None if it is simply read."""


class Values(NamedTuple):
    """A column of a table, with a value for each form."""

    values: npt.NDArray[Any]
    """Numbers, or indices of texts in the dictionary; undefined for NULL."""
    null: npt.NDArray[np.bool_] | None
    """Mask of NULLs; None if there are none."""
    dictionary: pa.Array | None
    """The distinct texts; None for numbers."""


class FormRows:
    """A row of a table for each form."""

    def __init__(self, batch: pa.RecordBatch, marks: npt.NDArray[np.int16], signs: npt.NDArray[np.int16]):
        self.batch = batch
        self.marks = marks
        """Shape (columns, rows): index of the number that the column takes, or NO_MARK."""
        self.signs = signs

    @cached_property
    def columns(self) -> list[Values]:
        """The columns of the batch."""
        return [_values(column) for column in self.batch.columns]


def _values(column: pa.Array) -> Values:
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    dictionary = None
    if pa.types.is_dictionary(column.type):
        texts = column.cast(pa.string()).dictionary_encode()
        column, dictionary = texts.indices, texts.dictionary
    return Values(column.fill_null(0).to_numpy(), null, dictionary)


class _Learned(NamedTuple):
    """A form, and a sample event with each set of markers."""

    text: bytes
    form: Form
    one: Event
    two: Event


class Known:
    """The forms of the chunks that were read so far."""

    def __init__(self) -> None:
        self.forms: dict[bytes, Form | None] = {}
        """By text; None if its events must be decoded one by one."""
        self.seen: set[bytes] = set()
        """Texts that occurred once so far."""
        self.rows: dict[str, FormRows] = {}
        """By table."""
        self.bytes = 0

    def learn(self, texts: Sequence[bytes], counts: Sequence[int], gap: int) -> None:
        """Learn the texts of a chunk. `counts`: events of each. `gap`: bytes at the end of a text that are no event."""
        groups: dict[str, list[_Learned]] = {}
        for text, count in zip(texts, counts, strict=True):
            if text in self.forms:
                continue
            if count == 1 and text not in self.seen:
                self.seen.add(text)
                self.bytes += len(text)
                continue
            self.bytes += len(text)
            self.forms[text] = None
            found = _marked(text, gap)
            if found is None:
                continue
            tally = Tally()
            categories = list(by_category([found.one], tally))
            if categories:
                groups.setdefault(categories[-1], []).append(found)
            else:
                self.forms[text] = found.form._replace(tally=None if tally == Tally(events=1) else tally)
        for category, group in groups.items():
            self._add(category, group)

    def _add(self, category: str, group: list[_Learned]) -> None:
        tally, again = Tally(events=len(group)), Tally()
        one = category_batch(category, [g.one for g in group], 0, tally)
        two = category_batch(category, [g.two for g in group], 0, again)
        all_read = tally == Tally(events=len(group))
        if not all_read and len(group) > 1:
            for learned in group:
                self._add(category, [learned])
            return
        if one is None or two is None:
            self.forms[group[0].text] = group[0].form._replace(tally=tally)
            return
        marks, signs = _compare(one, two)
        clear = np.flatnonzero((marks != _UNCLEAR).all(axis=0))
        if not len(clear):
            return
        rows = FormRows(one.take(pa.array(clear)), marks[:, clear], signs[:, clear])
        table = CATEGORIES[category][0]
        old = self.rows.get(table)
        first = old.batch.num_rows if old else 0
        for row, i in enumerate(clear, first):
            text, form = group[i][:2]
            integers = tuple(set(form.integers) - set(marks[:, i].tolist()))
            self.forms[text] = form._replace(integers=integers, row=row, tally=None if all_read else tally)
        self.rows[table] = rows if old is None else FormRows(
            concat([old.batch, rows.batch]), np.hstack([old.marks, rows.marks]), np.hstack([old.signs, rows.signs])
        )  # fmt: skip


def _marked(text: bytes, gap: int) -> _Learned | None:
    """Return the form of a text; None if it is not an event, or its numbers are not numbers."""
    at = [m.end() for m in _GONE.finditer(text)]
    pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text) - gap], strict=True)]
    events = []
    for first in _MARKS:
        marks = [b"%d" % n for n in range(first, first + len(at))]
        event = decode_event(b"".join(p for pair in zip(pieces, [*marks, b""], strict=True) for p in pair))
        if event is None:
            return None
        events.append(event)
    one, two = events
    if (one.ph, one.cat, one.name) != (two.ph, two.cat, two.name):
        return None
    integers = []
    fields = [("pid", one.pid, two.pid), ("tid", one.tid, two.tid)]
    if one.args is not None and two.args is not None:
        fields += zip(Args.__struct_fields__, astuple(one.args), astuple(two.args), strict=True)
    for name, value, other in fields:
        if value is not other and value != other:
            if name == _LOOKED_UP:
                return None
            if isinstance(value, int):
                integers.append(abs(value) - _MARKS[0])
    return _Learned(text, Form(one.ph, one.cat, one.name, len(at), tuple(integers)), one, two)


def _compare(one: pa.RecordBatch, two: pa.RecordBatch) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Compare the rows of the sample events: the number that each column takes, and its sign; shape (columns, rows)."""
    marks = np.full((one.num_columns, one.num_rows), NO_MARK, np.int16)
    signs = np.ones_like(marks)
    for i, name in enumerate(one.schema.names):
        a, b = one.column(i), two.column(i)
        if pa.types.is_dictionary(a.type):
            a, b = a.cast(pa.string()), b.cast(pa.string())
        other = pc.fill_null(pc.not_equal(a, b), False).to_numpy(zero_copy_only=False)
        other |= a.is_null().to_numpy(zero_copy_only=False) != b.is_null().to_numpy(zero_copy_only=False)
        if not other.any():
            continue
        if not pa.types.is_integer(a.type):
            marks[i, other] = _UNCLEAR
            continue
        unit = 1000 if name in TIMES else 1
        x, y = (c.fill_null(0).to_numpy()[other].astype(np.int64) for c in (a, b))
        place = np.abs(x) // unit - _MARKS[0]
        sign = np.sign(x)
        first, second = (sign * unit * (place + mark) for mark in _MARKS)
        marks[i, other] = np.where((place >= 0) & (x == first) & (y == second), place, _UNCLEAR)
        signs[i, other] = sign
    return marks, signs
