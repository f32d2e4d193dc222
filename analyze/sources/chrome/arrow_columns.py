"""Convert lists of JSON values to Arrow columns of the tables.

A file may have any value in any place. A value that a column cannot represent is NULL and counted in `unrepresentable`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from analyze.sources.interface import batch_schema

LONGEST_STRING = 1 << 20
"""Limit in bytes of a name or of the shapes of an operator's inputs."""
_NUMBER = re.compile(r"[-+]?[0-9]{1,100}", re.ASCII)
_UNSIGNED_MINUS_ONE = (2**32 - 1, 2**64 - 1)
_MAX_DOUBLE = 1.7976931348623157e308

Columns = dict[str, Any]
"""Lists or arrays of values by column; None or missing for all NULL."""


def record_batch(table: str, columns: Columns, n: int, unrepresentable: Counter[str]) -> pa.RecordBatch:
    """Return a batch of n rows of a table from its columns."""
    schema = batch_schema(table)
    arrays = [_array(columns.get(f.name), f, n, unrepresentable) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Any, field: pa.Field, n: int, unrepresentable: Counter[str]) -> pa.Array:
    type_ = field.type
    if values is None:
        return pa.nulls(n, type_)
    if pa.types.is_dictionary(type_):
        if not isinstance(values, pa.Array):
            values = pa.array(values, pa.string()).dictionary_encode()
        return _bounded(values, field.name, unrepresentable)
    if isinstance(values, np.ndarray | pa.Array):
        return pa.array(values, type=type_)
    try:
        array = pa.array(values, type=type_)
    except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError):
        array = pa.array(_as_numbers(values, field, unrepresentable), type=type_)
    if pa.types.is_floating(type_):
        numbers = array.to_numpy(zero_copy_only=False)
        if np.isinf(numbers).any() or np.isnan(numbers).sum() > array.null_count:
            array = pa.array(_as_numbers(values, field, unrepresentable), type=type_)
    return array


def _as_numbers(values: Sequence[Any], field: pa.Field, unrepresentable: Counter[str]) -> list[int | float | None]:
    """Return values as a column: quoted numbers as numbers, the nearest double in columns of doubles, others as NULL.

    These NULLs are counted, except values that say that there is no number: a label ("pid": "Spans"), unsigned -1, NaN.
    """
    low, high = {
        pa.int32(): (-(2**31), 2**31 - 1), pa.int64(): (-(2**63), 2**63 - 1), pa.float64(): (-_MAX_DOUBLE, _MAX_DOUBLE)
    }[field.type]  # fmt: skip
    numbers: list[int | float | None] = []
    for value in values:
        if isinstance(value, str):
            value = int(value) if _NUMBER.fullmatch(value) else None
        if value is not None and not low <= value <= high:
            if value not in _UNSIGNED_MINUS_ONE and value == value:
                unrepresentable[field.name] += 1
            value = None
        # Arrow refuses integers that are not exact as doubles.
        numbers.append(float(value) if value is not None and pa.types.is_floating(field.type) else value)
    return numbers


def _bounded(texts: pa.DictionaryArray, name: str, unrepresentable: Counter[str]) -> pa.DictionaryArray:
    """Return texts with NULL for those longer than LONGEST_STRING."""
    if texts.dictionary.nbytes <= LONGEST_STRING:
        return texts
    plain = texts.cast(pa.string())
    fits = pc.fill_null(pc.less_equal(pc.binary_length(plain), LONGEST_STRING), True)
    if (long := len(plain) - pc.sum(fits).as_py()) == 0:
        return texts
    unrepresentable[name] += long
    return pc.if_else(fits, plain, None).dictionary_encode()


def json_texts(raws: list[Raw]) -> pa.DictionaryArray:
    """Return raw JSON texts as a column, absent ones as NULL."""
    return pa.array([bytes(r).decode("utf-8", "replace") or None for r in raws], pa.string()).dictionary_encode()


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches of a table."""
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches()[0]
