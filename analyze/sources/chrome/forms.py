"""Events of a few forms as Arrow batches, without an object for each event.

A form is the text of an event without the numbers that change (see `cutting`). An event of each form, its numbers
replaced by marks, goes the ordinary way: through the JSON decoder and `tables`; and once more with other marks. Where
the two rows that come out differ, and by their marks, a column is a number of the text; all else is the same for all
events of the form. So whatever the layout of a file, and whatever a version of Kineto writes into it, the rows are
those that the ordinary way makes. An event whose form is seen once is decoded as it is; a chunk that holds anything
else than events goes the ordinary way as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from analyze.sources.chrome.cutting import Cut, Ints, cut
from analyze.sources.chrome.decimal_us import MAX_NS
from analyze.sources.chrome.events import Args, Event, Tally, decode_event
from analyze.sources.chrome.tables import CATEGORIES, Batches, by_category, category_batch, concat, no_values

LEAST = 4 << 20
"""Bytes of a chunk below which its forms are not worth learning: some 500 take as long as decoding 5 MB."""
_EVENTS_PER_FORM = 2
"""On average, below which decoding them is faster."""
_MOST_BYTES = 64 << 20
"""Of the texts of earlier chunks that are kept."""
_GONE = re.compile(rb'": ?+-?+(?=[,}\s])')
"""What stands before a number that was cut out: JSON has something behind a colon."""
_MARKS = (1_000_000, 2_000_000)
"""What the first number of a form is replaced by, the next by one more: they fit into every column."""
_NO_MARK, _UNCLEAR = -1, -2
_TIMES = ("start_ns", "dur_ns")
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


class _Rows(NamedTuple):
    """A row of a table for each form."""

    batch: pa.RecordBatch
    marks: npt.NDArray[np.int16]
    """(columns, rows): which of the form's numbers the column is, or _NO_MARK."""
    signs: npt.NDArray[np.int16]


class _Learned(NamedTuple):
    """A form, and an event of it with each set of marks."""

    text: bytes
    form: Form
    one: Event
    two: Event


class _Known:
    """The forms of the chunks that this process has read so far."""

    def __init__(self) -> None:
        self.forms: dict[bytes, Form | None] = {}
        """None for a text that says nothing of its events: they are decoded one by one."""
        self.seen: set[bytes] = set()
        """Texts of one event so far."""
        self.rows: dict[str, _Rows] = {}
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
        rows = _Rows(one.take(pa.array(clear)), marks[:, clear], signs[:, clear])
        table = CATEGORIES[category][0]
        old = self.rows.get(table)
        first = old.batch.num_rows if old else 0
        for row, i in enumerate(clear, first):
            text, form = group[i][:2]
            integers = tuple(set(form.integers) - set(marks[:, i].tolist()))
            self.forms[text] = form._replace(integers=integers, row=row, tally=None if all_read else tally)
        self.rows[table] = rows if old is None else _Rows(
            concat([old.batch, rows.batch]), np.hstack([old.marks, rows.marks]), np.hstack([old.signs, rows.signs])
        )  # fmt: skip


_known = _Known()
_lock = Lock()
"""Of what is known: threads of this process may read two traces at a time."""


class _Member(NamedTuple):
    """A form of a chunk, or an event that is decoded as it is."""

    ph: str
    cat: str
    name: str
    code: int
    row: int = -1
    event: Event | None = None


_Placed = tuple[str, _Member]
"""A member, with its category before it."""


class _NotSo(Exception):
    """The chunk has something that its forms do not tell."""


def build_by_form(chunk: bytes, size: int, base_ns: int, tally: Tally) -> Batches | None:
    """What `build_batches` makes of the events of a chunk of so many bytes, or None for one that is left to it.

    That is one of few bytes, of as many forms as events, or that does not hold just events.
    """
    global _known
    if size < LEAST or not _is_utf8(chunk, size):
        return None
    parts = cut(chunk, size)
    if parts is None or _EVENTS_PER_FORM * len(parts.texts) > len(parts.codes):
        return None
    own = Tally()
    with _lock:
        if _known.bytes > _MOST_BYTES:
            _known = _Known()
        try:
            batches = _batches(parts, base_ns, own)
        except _NotSo:
            return None
    tally.add(own)
    return batches


def _is_utf8(chunk: bytes, size: int) -> bool:
    try:
        return chunk.isascii() or bool(chunk[:size].decode())
    except UnicodeDecodeError:
        return False


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
    marks = np.full((one.num_columns, one.num_rows), _NO_MARK, np.int16)
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
        unit = 1000 if name in _TIMES else 1
        x, y = (c.fill_null(0).to_numpy()[other].astype(np.int64) for c in (a, b))
        place = np.abs(x) // unit - _MARKS[0]
        sign = np.sign(x)
        first, second = (sign * unit * (place + mark) for mark in _MARKS)
        marks[i, other] = np.where((place >= 0) & (x == first) & (y == second), place, _UNCLEAR)
        signs[i, other] = sign
    return marks, signs


def _batches(parts: Cut, base_ns: int, tally: Tally) -> Batches:
    u = len(parts.texts)
    counts = np.bincount(parts.codes, minlength=u).tolist()
    _known.learn(parts.texts, counts, parts.gap)
    forms = [_known.forms.get(text) for text in parts.texts]
    _check_numbers(parts, forms)
    # Where each form appears first: its code is the next that was not there yet.
    first = np.flatnonzero(np.diff(np.maximum.accumulate(parts.codes), prepend=-1)).tolist()
    members: list[tuple[int, _Member]] = []
    for code, (form, count) in enumerate(zip(forms, counts, strict=True)):
        if form is None:
            continue
        members.append((first[code], _Member(form.ph, form.cat, form.name, code, form.row)))
        if form.tally is None:
            tally.events += count
        else:
            tally.add(form.tally, count)
    codes = parts.codes
    alone = np.flatnonzero(np.array([f is None for f in forms])[codes])
    if _EVENTS_PER_FORM * len(alone) > len(codes):
        raise _NotSo
    if len(alone):
        codes = codes.copy()
        codes[alone] = np.arange(u, u + len(alone))
        events = [_event(parts, i) for i in alone.tolist()]
        members += [
            (i, _Member(e.ph, e.cat, e.name, u + k, event=e))
            for k, (i, e) in enumerate(zip(alone.tolist(), events, strict=True))
        ]
        members.sort(key=lambda m: m[0])
        by_category(events, tally)
    tables: dict[str, list[_Placed]] = {}
    for category, own in by_category([m for _, m in members], Tally()).items():
        if placed := [(category, m) for m in own if m.event is not None or m.row >= 0]:
            tables.setdefault(CATEGORIES[category][0], []).extend(placed)
    return {table: _table(table, placed, codes, parts, base_ns, tally) for table, placed in tables.items()}


def _event(parts: Cut, i: int) -> Event:
    event = decode_event(parts.data[parts.starts[i] : parts.starts[i + 1] - parts.gap])
    if event is None:
        raise _NotSo
    return event


def _check_numbers(parts: Cut, forms: Sequence[Form | None]) -> None:
    """Raise _NotSo if an event has other numbers than its form: more, fewer, or a fraction for an integer."""
    expected = np.array([f.numbers if f else -1 for f in forms])[parts.codes]
    if ((expected != np.diff(parts.first)) & (expected >= 0)).any():
        raise _NotSo
    for code, form in enumerate(forms):
        if form and form.integers:
            first = parts.first[np.flatnonzero(parts.codes == code)]
            if any(parts.pointed[first + place].any() for place in form.integers):
                raise _NotSo


def _table(
    table: str, members: Sequence[_Placed], codes: npt.NDArray[np.int32], parts: Cut, base_ns: int, tally: Tally
) -> pa.RecordBatch:
    """The rows of a table: of forms and events in the order of their groups, and in each as they stand."""
    forms = [p for p in members if p[1].event is None]
    alone = [p for p in members if p[1].event is not None]
    rows, places = _rows(table, [m.row for _, m in forms], alone, tally)
    at = np.full(int(codes.max()) + 1, -1, np.int32)
    at[[m.code for _, m in forms + alone]] = np.arange(len(members))
    row = at[codes]
    events = np.flatnonzero(row >= 0)
    row = row[events]
    groups = {key: n for n, key in enumerate(dict.fromkeys((category, m.ph, m.cat) for category, m in members))}
    if len(groups) > 1:
        group = np.array([groups[category, m.ph, m.cat] for category, m in forms + alone], np.int16)
        order = np.argsort(group[row], kind="stable")
        events, row = events[order], row[order]
    first = parts.first[events]
    marks, signs = rows.marks[:, places], rows.signs[:, places]
    used = pa.array(places)
    columns = [
        _column(field, rows.batch.column(i), used, marks[i], signs[i], row, first, parts, base_ns)
        for i, field in enumerate(rows.batch.schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.batch.schema)


def _rows(table: str, places: Sequence[int], alone: Sequence[_Placed], tally: Tally) -> tuple[_Rows, Ints]:
    """Rows of a table, and where among them are those of forms and then those of events."""
    known = _known.rows.get(table)
    if known is not None and not alone:
        return known, np.array(places, np.int64)
    lost = tally.lost.total()
    batches = [] if known is None else [known.batch.take(pa.array(places, pa.int64()))]
    for category, group in groupby(alone, key=lambda p: p[0]):
        batch = category_batch(category, [m.event for _, m in group if m.event is not None], 0, tally)
        if batch is None or tally.lost.total() > lost:  # fewer rows than there are events
            raise _NotSo
        batches.append(batch)
    batch = concat(batches)
    marks = np.full((batch.num_columns, batch.num_rows), _NO_MARK, np.int16)
    signs = np.ones_like(marks)
    if known is not None:
        marks[:, : len(places)], signs[:, : len(places)] = known.marks[:, places], known.signs[:, places]
    return _Rows(batch, marks, signs), np.arange(batch.num_rows)


def _column(
    field: pa.Field,
    column: pa.Array,
    used: pa.Array,
    marks: npt.NDArray[np.int16],
    signs: npt.NDArray[np.int16],
    row: npt.NDArray[np.int32],
    first: Ints,
    parts: Cut,
    base_ns: int,
) -> pa.Array:
    """A column of n events from the row and the first number of each.

    `used` are the rows in the column of the table; marks and signs, and the row of each event, go by those.
    """
    if not (marks >= 0).any():
        if column.null_count == len(column):
            return no_values(field, len(row))
        values = column.take(used)
        if pa.types.is_dictionary(field.type):
            texts = values.cast(pa.string()).dictionary_encode()
            return pa.DictionaryArray.from_arrays(_at(texts.indices, row), texts.dictionary)
        array = _at(values, row)
        return pa.array(_since(array.to_numpy(), base_ns)) if field.name == "start_ns" else array
    is_time = field.name in _TIMES
    null = None
    if (marks == marks[0]).all():
        numbers = _numbers(parts, first + marks[0], is_time)
        if (signs < 0).any():
            numbers = numbers * signs[row]
    else:
        values = column.take(used)
        place = marks[row]
        marked = np.flatnonzero(place >= 0)
        numbers = values.fill_null(0).to_numpy()[row].astype(np.int64, copy=False)
        numbers[marked] = _numbers(parts, first[marked] + place[marked], is_time) * signs[row[marked]]
        if values.null_count:
            null = values.is_null().to_numpy(zero_copy_only=False)[row]
            null[marked] = False
    if field.type == pa.int32() and np.abs(numbers).max() >= 2**31:
        raise _NotSo
    return pa.array(_since(numbers, base_ns) if field.name == "start_ns" else numbers, field.type, mask=null)


def _at(values: pa.Array, row: npt.NDArray[np.int32]) -> pa.Array:
    """For each row its value."""
    if values.null_count:
        return values.take(pa.array(row))
    return pa.array(values.to_numpy()[row])


def _numbers(parts: Cut, place: Ints, is_time: bool) -> Ints:
    whole = parts.whole[place]
    if not is_time:
        if parts.pointed[place].any():
            raise _NotSo
        return whole
    exact = parts.exact.all() or parts.exact[place].all()
    if not exact or whole.max() >= MAX_NS // 1000:
        raise _NotSo
    return whole * 1000 + parts.thousandths[place]


def _since(starts: Ints, base_ns: int) -> Ints:
    starts = starts + base_ns
    if np.abs(starts).max() > MAX_NS:
        raise _NotSo
    return starts
