"""What each GPU of a rank runs at any time: segments in which the number of kernels, copies and fills does not change.

Pure functions over one rank's rows. Intervals are half-open: [start, end).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from analyze.derive.columns import NULL, Ints, Mask, equals, ints, text_codes

if TYPE_CHECKING:
    import pyarrow as pa

READS = {
    "kernels": ("device", "name", "start_ns", "dur_ns"),
    "memcpys": ("device", "start_ns", "dur_ns"),
    "memsets": ("device", "start_ns", "dur_ns"),
    "kernel_names": ("name", "family"),
}
COUNTS = ("compute_kernels", "comm_kernels", "memcpys", "memsets")
"""What is counted in a segment, a column each."""


def gpu_segments(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the segments of each device: device, start_ns, dur_ns and how many of each of COUNTS run.

    A device's segments follow each other without a gap from its first start to its last end; while it is idle, all
    counts are 0. Neighbours differ in a count. Work of 0 ns is in no segment, but the first start and the last end may
    be its; a device with no other work has one segment of 0 ns.
    """
    import pyarrow as pa

    kernels = tables["kernels"]
    comm = _is_communication(kernels, tables["kernel_names"])
    device, start, end = _work(kernels)
    kinds = [(device[chosen], start[chosen], end[chosen]) for chosen in (~comm, comm)]
    kinds += [_work(tables["memcpys"]), _work(tables["memsets"])]
    parts = []
    for number in np.unique(np.concatenate([device for device, _, _ in kinds])):
        of_device = [(start[device == number], end[device == number]) for device, start, end in kinds]
        starts, lengths, counts = _segments(of_device)
        columns = {
            "device": pa.repeat(pa.scalar(None if number == NULL else int(number), pa.int32()), len(starts)),
            "start_ns": pa.array(starts),
            "dur_ns": pa.array(lengths),
        }
        parts.append(pa.table(columns | dict(zip(COUNTS, map(pa.array, counts), strict=True))))
    types = {"device": pa.int32(), "start_ns": pa.int64(), "dur_ns": pa.int64()} | dict.fromkeys(COUNTS, pa.int32())
    return pa.concat_tables(parts) if parts else pa.schema(types).empty_table()


def _is_communication(kernels: pa.Table, kernel_names: pa.Table) -> Mask:
    """Whether each kernel is of the family communication."""
    (of_kernels, known), texts = text_codes([kernels["name"], kernel_names["name"]])
    communication = np.zeros(len(texts) + 1, bool)  # The last is for -1, which stands for no name.
    communication[known[equals(kernel_names["family"], "communication")]] = True
    return communication[of_kernels]


def _work(table: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Device, start and end of each row; a length that is not known or negative counts as 0."""
    device, start, dur = (ints(table, c) for c in ("device", "start_ns", "dur_ns"))
    return device, start, start + np.maximum(dur, 0)


def _segments(kinds: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints, list[npt.NDArray[np.int32]]]:
    """Start and length of each segment of one device, and for each kind how many of its intervals run there.

    `kinds`: starts and ends of the intervals of each.
    """
    times = np.concatenate([edges for kind in kinds for edges in kind])
    changes = np.repeat(np.array([1, -1] * len(kinds), np.int8), [len(edges) for kind in kinds for edges in kind])
    kind_of = np.repeat(np.arange(len(kinds), dtype=np.int8), [2 * len(starts) for starts, _ in kinds])
    order = np.argsort(times, kind="stable")  # which merges what is sorted already, as most files are
    times, changes, kind_of = times[order], changes[order], kind_of[order]
    last = np.append(times[1:] != times[:-1], True)  # the last edge of each time
    times = times[last]
    counts = [np.cumsum(changes * (kind_of == kind), dtype=np.int32)[last] for kind in range(len(kinds))]
    begins = np.logical_or.reduce([np.append(True, count[1:] != count[:-1]) for count in counts])
    begins[1:][-1:] = False  # Nothing runs from the last edge on.
    starts = times[begins]
    lengths = np.append(starts[1:], times[-1]) - starts
    return starts, lengths, [count[begins] for count in counts]
