"""Convert events of few forms to Arrow batches, without a Python object for each event.

A form is the text of an event without its changing numbers (see `cutting`). `known_forms` has, for each form, the row
of its events and which columns take which number. Here the rows are repeated for the events of a chunk and the numbers
filled in. An event whose form occurs once is decoded alone; a chunk with anything but events is left to the JSON
decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.sources.chrome.arrow_columns import concat, no_values
from analyze.sources.chrome.category_columns import CATEGORIES
from analyze.sources.chrome.cutting import Cut, Ints, cut
from analyze.sources.chrome.decimal_us import MAX_NS
from analyze.sources.chrome.events import Event, Tally, decode_event
from analyze.sources.chrome.known_forms import NO_MARK, TIMES, Form, FormRows, Known, Values
from analyze.sources.chrome.processes import HALVES
from analyze.sources.chrome.tables import Batches, by_category, category_batch

LEAST = 4 << 20
"""Bytes of a chunk from which forms are used: learning 500 forms takes as long as decoding 5 MB."""
_EVENTS_PER_FORM = 2
"""Mean events per form from which forms are faster than decoding."""
_MOST_BYTES = 64 << 20
"""Limit in bytes of known forms."""


class _Member(NamedTuple):
    """A form of a chunk, or an event that is decoded alone."""

    ph: str
    cat: str
    name: str
    code: int
    row: int = -1
    event: Event | None = None


_Placed = tuple[str, _Member]
"""Category and member."""


class _NeedsDecoder(Exception):
    """The chunk has something that forms cannot represent."""


class Forms:
    """The forms that were learned from chunks. Thread-safe."""

    def __init__(
        self, least: int = LEAST, events_per_form: int = _EVENTS_PER_FORM, most_bytes: int = _MOST_BYTES
    ) -> None:
        """Use forms of chunks of `least` bytes with so many events per form; forget them above `most_bytes`."""
        self.known = Known()
        self._least, self._events_per_form, self._most_bytes = least, events_per_form, most_bytes
        self._lock = Lock()

    def build(self, chunk: bytes, size: int, base_ns: int, tally: Tally) -> Batches | None:
        """Convert the events in the first `size` bytes of a chunk, with the same result as `build_batches`.

        Returns None if the JSON decoder must or should read the chunk: it is small, has too many forms, or has
        something else than events.
        """
        if size < self._least or not _is_utf8(chunk, size):
            return None
        parts = cut(chunk, size)
        if parts is None or self._events_per_form * len(parts.texts) > len(parts.codes):
            return None
        own = Tally()
        with self._lock:
            if self.known.bytes > self._most_bytes:
                self.known = Known()
            try:
                batches = _batches(self.known, parts, base_ns, own, self._events_per_form)
            except _NeedsDecoder:
                return None
        tally.add(own)
        return batches


FORMS = Forms()
"""The forms of all traces that this process reads."""


def _is_utf8(chunk: bytes, size: int) -> bool:
    try:
        return chunk.isascii() or bool(chunk[:size].decode())
    except UnicodeDecodeError:
        return False


def _batches(known: Known, parts: Cut, base_ns: int, tally: Tally, events_per_form: int) -> Batches:
    u = len(parts.texts)
    counts = np.bincount(parts.codes, minlength=u).tolist()
    known.learn(parts.texts, counts, parts.gap)
    forms = [known.forms.get(text) for text in parts.texts]
    if any(form.ph in HALVES for form in forms if form):
        raise _NeedsDecoder
    _check_numbers(parts, forms)
    # The first event of each form: codes are numbered by first appearance.
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
    if events_per_form * len(alone) > len(codes):
        raise _NeedsDecoder
    if len(alone):
        codes = codes.copy()
        codes[alone] = np.arange(u, u + len(alone))
        events = [_event(parts, i) for i in alone.tolist()]
        members += [
            (i, _Member(e.ph, e.cat, e.name, u + k, event=e))
            for k, (i, e) in enumerate(zip(alone.tolist(), events, strict=True))
        ]
        if any(e.ph in HALVES for e in events):
            raise _NeedsDecoder
        members.sort(key=lambda m: m[0])
        by_category(events, tally)
    tables: dict[str, list[_Placed]] = {}
    for category, own in by_category([m for _, m in members], Tally()).items():
        if placed := [(category, m) for m in own if m.event is not None or m.row >= 0]:
            tables.setdefault(CATEGORIES[category][0], []).extend(placed)
    return {
        table: _table(known.rows.get(table), placed, codes, parts, base_ns, tally) for table, placed in tables.items()
    }


def _event(parts: Cut, i: int) -> Event:
    event = decode_event(parts.data[parts.starts[i] : parts.starts[i + 1] - parts.gap])
    if event is None:
        raise _NeedsDecoder
    return event


def _check_numbers(parts: Cut, forms: Sequence[Form | None]) -> None:
    """Raise _NeedsDecoder if an event has more or fewer numbers than its form, or a fraction in place of an integer."""
    expected = np.array([f.numbers if f else -1 for f in forms])[parts.codes]
    if ((expected != np.diff(parts.first)) & (expected >= 0)).any():
        raise _NeedsDecoder
    for code, form in enumerate(forms):
        if form and form.integers:
            first = parts.first[np.flatnonzero(parts.codes == code)]
            if any(parts.pointed[first + place].any() for place in form.integers):
                raise _NeedsDecoder


def _table(
    known: FormRows | None,
    members: Sequence[_Placed],
    codes: npt.NDArray[np.int32],
    parts: Cut,
    base_ns: int,
    tally: Tally,
) -> pa.RecordBatch:
    """Return the rows of a table, group by group, in the order of the file within a group."""
    forms = [p for p in members if p[1].event is None]
    alone = [p for p in members if p[1].event is not None]
    rows, places = _rows(known, [m.row for _, m in forms], alone, tally)
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
    least, most, negative = marks.min(axis=1), marks.max(axis=1), signs.min(axis=1) < 0
    columns = []
    for i, (field, column) in enumerate(zip(rows.batch.schema, rows.columns, strict=True)):
        if most[i] == NO_MARK:
            columns.append(_constant(field, column, places, row, base_ns))
            continue
        null = None
        if least[i] == most[i]:
            numbers = _numbers(parts, first + most[i], field.name in TIMES)
            if negative[i]:
                numbers = numbers * signs[i, row]
        else:
            numbers, null = _mixed(column, places, marks[i], signs[i], row, first, parts, field.name in TIMES)
        if field.type == pa.int32() and np.abs(numbers).max() >= 2**31:
            raise _NeedsDecoder
        if field.name == "dur_ns" and negative[i] and numbers.min() < 0:
            raise _NeedsDecoder
        columns.append(pa.array(_since(field, numbers, base_ns), field.type, mask=null))
    return pa.RecordBatch.from_arrays(columns, schema=rows.batch.schema)


def _rows(
    known: FormRows | None, places: Sequence[int], alone: Sequence[_Placed], tally: Tally
) -> tuple[FormRows, Ints]:
    """Return rows of a table, and the indices of those of forms and then those of single events."""
    if known is not None and not alone:
        return known, np.array(places, np.int64)
    lost = tally.lost.total()
    batches = [] if known is None else [known.batch.take(pa.array(places, pa.int64()))]
    for category, group in groupby(alone, key=lambda p: p[0]):
        batch = category_batch(category, [m.event for _, m in group if m.event is not None], 0, tally)
        if batch is None or tally.lost.total() > lost:  # fewer rows than there are events
            raise _NeedsDecoder
        batches.append(batch)
    batch = concat(batches)
    marks = np.full((batch.num_columns, batch.num_rows), NO_MARK, np.int16)
    signs = np.ones_like(marks)
    if known is not None:
        marks[:, : len(places)], signs[:, : len(places)] = known.marks[:, places], known.signs[:, places]
    return FormRows(batch, marks, signs), np.arange(batch.num_rows)


def _constant(field: pa.Field, column: Values, places: Ints, row: npt.NDArray[np.int32], base_ns: int) -> pa.Array:
    """Return a column that is constant for each form. `row`: index of each event's form in `places`."""
    null: npt.NDArray[np.bool_] | None = None if column.null is None else column.null[places]
    if null is not None and null.all():
        return no_values(field, len(row))
    values = column.values[places]
    mask = None if null is None or not null.any() else null[row]
    if column.dictionary is None:
        return pa.array(_since(field, values[row], base_ns), field.type, mask=mask)
    # Only texts that occur: kernel names are taken from the dictionary.
    used = np.unique(values if null is None else values[~null])
    indices = np.searchsorted(used, values).astype(np.int32)[row]
    texts = column.dictionary if len(used) == len(column.dictionary) else column.dictionary.take(pa.array(used))
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=mask), texts)


def _mixed(
    column: Values,
    places: Ints,
    marks: npt.NDArray[np.int16],
    signs: npt.NDArray[np.int16],
    row: npt.NDArray[np.int32],
    first: Ints,
    parts: Cut,
    is_time: bool,
) -> tuple[Ints, npt.NDArray[np.bool_] | None]:
    """Return a column that is a number for some forms only, and its NULLs. `first`: first number of each event."""
    place = marks[row]
    marked = np.flatnonzero(place >= 0)
    numbers = column.values[places][row].astype(np.int64, copy=False)
    numbers[marked] = _numbers(parts, first[marked] + place[marked], is_time) * signs[row[marked]]
    if column.null is None:
        return numbers, None
    null = column.null[places][row]
    null[marked] = False
    return numbers, null


def _numbers(parts: Cut, place: Ints, is_time: bool) -> Ints:
    whole = parts.whole[place]
    if not is_time:
        if parts.pointed[place].any():
            raise _NeedsDecoder
        return whole
    exact = parts.exact.all() or parts.exact[place].all()
    if not exact or whole.max() >= MAX_NS // 1000:
        raise _NeedsDecoder
    return whole * 1000 + parts.thousandths[place]


def _since(field: pa.Field, values: Ints, base_ns: int) -> Ints:
    """Add `base_ns` to a column of starts; return other columns unchanged."""
    if field.name != "start_ns":
        return values
    starts = values + base_ns
    if np.abs(starts).max() > MAX_NS:
        raise _NeedsDecoder
    return starts
