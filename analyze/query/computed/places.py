"""Where numbers stand among many, which are near each other as the ids of a recording are, or not."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]

UNKNOWN = int(np.iinfo(np.int64).min)
"""A number that the recording does not say."""


class Places:
    """Where values stand, the last of those that are equal. UNKNOWN stands nowhere."""

    def __init__(self, values: Ints):
        known = np.flatnonzero(values != UNKNOWN)
        values = values[known]
        self._low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        self._is_array = high - self._low <= 4 * len(values) + 2**16
        if self._is_array:
            # Its last place is that of everything else. (Half the bytes take half the time.)
            number = np.int32 if len(known) < 2**31 else np.int64
            self._place: npt.NDArray[np.integer[Any]] = np.full(high - self._low + 2, -1, number)
            self._place[values - self._low] = known
        else:
            order = np.argsort(values, kind="stable")
            self._values, self._place = values[order], known[order]

    def of(self, wanted: Ints) -> npt.NDArray[np.integer[Any]]:
        """The places of what is wanted; -1 for what is not there."""
        if self._is_array:
            inside = (wanted >= self._low) & (wanted < self._low + len(self._place) - 1)
            return self._place[np.where(inside, wanted - self._low, -1)]
        at = np.searchsorted(self._values, wanted, "right") - 1
        return np.where((self._values[at] == wanted) & (at >= 0), self._place[at], -1)


def integers(column: pa.ChunkedArray) -> Ints:
    """Numbers of 64 bits; UNKNOWN where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.cast(pa.int64())
    return (pc.fill_null(column, UNKNOWN) if column.null_count else column).to_numpy()


def equal_runs(values: Ints) -> list[slice]:
    """Where equal values stand side by side."""
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return [slice(a, b) for a, b in pairwise([*begins.tolist(), len(values)])]
