"""The CUDA call that launched each piece of GPU work, by correlation id."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.derive.interval_nesting import firsts
from analyze.derive.numpy_columns import NULL, Ints, ints, text_codes
from analyze.derive.threads import find

if TYPE_CHECKING:
    import pyarrow as pa


class Calls(NamedTuple):
    """CUDA calls that launch work, in ascending order of their correlation ids."""

    id: Ints
    tid: Ints
    """NULL is a thread of its own."""
    start: Ints
    dur: Ints
    name: npt.NDArray[np.int32]
    """Number of the name."""


def launch_calls(cuda_calls: pa.Table, wanted: Ints) -> tuple[Calls, pa.Array]:
    """Return the launch call of each wanted correlation id (ascending) and the names of calls.

    The runtime's call, where a driver call inside it has its id. An id that several processes used, or several
    different calls of one API, has no launch call. A call that the file has several times is one; its longest length
    counts.
    """
    (api,), apis = text_codes([cuda_calls.column("api")])
    (name,), names = text_codes([cuda_calls.column("name")])
    kinds = np.array([{"runtime": 0, "driver": 1}.get(text, 2) for text in apis.to_pylist()] + [2])[api]
    correlation = ints(cuda_calls, "correlation_id")
    rows = np.flatnonzero((kinds < 2) & (correlation > 0))
    rows = rows[find(wanted, correlation[rows]) >= 0]
    rows = rows[np.argsort(correlation[rows] * 2 + kinds[rows], kind="stable")]
    ids, kind = correlation[rows], kinds[rows]
    pid, tid, start, dur = (ints(cuda_calls, c)[rows] for c in ("pid", "tid", "start_ns", "dur_ns"))
    called = name[rows]
    begins = np.flatnonzero(firsts(ids))
    counts = np.diff(begins, append=len(ids))
    own = np.repeat(begins, counts)  # the first row of each row's id
    of_api = kind == kind[own]
    differs = of_api & ((start != start[own]) | (tid != tid[own]) | (called != called[own]))
    if len(begins):
        last_pid = np.maximum.reduceat(pid, begins)
        first_pid = np.minimum.reduceat(np.where(pid == NULL, np.repeat(last_pid, counts), pid), begins)
        clear = ~np.logical_or.reduceat(differs, begins) & (first_pid == last_pid)
        longest = np.maximum.reduceat(np.where(of_api, dur, NULL), begins)
        begins, dur = begins[clear], longest[clear]
    return Calls(ids[begins], tid[begins], start[begins], dur, called[begins]), names
