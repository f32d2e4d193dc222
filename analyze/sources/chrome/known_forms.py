"""What is known of the forms of events: the rows that their events make, and where in these their numbers stand.

An event of each form, its numbers replaced by marks, goes the ordinary way: through the JSON decoder and `tables`; and
once more with other marks. Where the two rows that come out differ, and by their marks, a column is a number of the
text; all else is the same for all events of the form. So whatever the layout of a file, and whatever a version of
Kineto writes into it, the rows are those that the ordinary way makes.
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
"""What stands before a number that was cut out: JSON has something behind a colon."""
_MARKS = (1_000_000, 2_000_000)
"""What the first number of a form is replaced by, the next by one more: they fit into every column."""
NO_MARK, _UNCLEAR = -1, -2
"""In place of a number's: a column is none of the form's numbers, or it cannot be told which."""
TIMES = ("start_ns", "dur_ns")
"""Columns whose numbers stand in the text as us."""
_NOT_AS_IT_IS = "memory_device_type"
"""The one number that is not written into its column, but looked up."""


class Form(NamedTuple):
    """What is known of the events that leave a text."""

    ph: str
    cat: str
    name: str
    numbers: int
    """How many were cut out of each."""
    integers: tuple[int, ...]
    """Which of them have to be integers but are in no column, by their places."""
    row: int = -1
    """Its row among those of its table; -1 if no table is for it."""
    tally: Tally | None = None
    """What became of each event, if more than that it was read."""


class Values(NamedTuple):
    """What a column of a table says of each of its forms."""

    values: npt.NDArray[Any]
    """Numbers, or of texts their places in the dictionary; anything for what is NULL."""
    null: npt.NDArray[np.bool_] | None
    """Which are NULL, if any are."""
    dictionary: pa.Array | None
    """Of texts."""


class FormRows:
    """A row of a table for each form."""

    def __init__(self, batch: pa.RecordBatch, marks: npt.NDArray[np.int16], signs: npt.NDArray[np.int16]):
        self.batch = batch
        self.marks = marks
        """(columns, rows): which of the form's numbers the column is, or NO_MARK."""
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
    """A form, and an event of it with each set of marks."""

    text: bytes
    form: Form
    one: Event
    two: Event


class Known:
    """The forms of the chunks that this process has read so far."""

    def __init__(self) -> None:
        self.forms: dict[bytes, Form | None] = {}
        """None for a text that says nothing of its events: they are decoded one by one."""
        self.seen: set[bytes] = set()
        """Texts of one event so far."""
        self.rows: dict[str, FormRows] = {}
        """By table."""
        self.bytes = 0

    def learn(self, texts: Sequence[bytes], counts: Sequence[int], gap: int) -> None:
        """Take note of the texts of a chunk, of which so many events each; they end with `gap` bytes of no event."""
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
    """What a text says of itself; None if it is no event, or if its numbers are not numbers."""
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
            if name == _NOT_AS_IT_IS:
                return None
            if isinstance(value, int):
                integers.append(abs(value) - _MARKS[0])
    return _Learned(text, Form(one.ph, one.cat, one.name, len(at), tuple(integers)), one, two)


def _compare(one: pa.RecordBatch, two: pa.RecordBatch) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Where each column of each row has a mark: (columns, rows), and the sign that stood before it."""
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
