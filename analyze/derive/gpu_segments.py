"""What each GPU of a rank runs at any time: segments in which the number of kernels, copies and fills does not change.

Pure functions over one rank's rows. Intervals are half-open: [start, end).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.derive.interface import Derived
from analyze.derive.numpy_columns import NULL, Ints, Mask, equals, ints, last_if_null, nullable, text_codes
from schemas.table_declaration import declare_table

if TYPE_CHECKING:
    import pyarrow as pa

CALL = ("correlation_id", "call_tid", "call_start_ns", "call_dur_ns")
"""What launched GPU work. Idle segments have these columns of the work that ends them, as `next_...`."""
READS = {"gpu_work": ("kind", "name", "device", "start_ns", "dur_ns", *CALL), "kernel_names": ("name", "family")}
COUNTS = ("compute_kernels", "comm_kernels", "memcpys", "memsets")
"""The kinds of work that are counted in a segment, one column each."""
COLUMNS = ("device", "start_ns", "dur_ns", *COUNTS, *(f"next_{column}" for column in CALL))


class Work(NamedTuple):
    """GPU work: kernels, copies or fills."""

    device: Ints
    start: Ints
    end: Ints
    correlation_id: Ints
    call_tid: Ints
    call_start: Ints
    call_dur: Ints

    def take(self, rows: Ints | Mask) -> Work:
        """Return these rows."""
        return Work(*(column[rows] for column in self))


def gpu_segments(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the segments of each device, in the columns of the table `gpu_segments`.

    A device's segments follow each other without a gap from its first start to its last end; while it is idle, all
    counts are 0. Neighbours differ in a count. Work of 0 ns is in no segment, but the first start and the last end may
    be its; a device with no other work has one segment of 0 ns.
    """
    import pyarrow as pa

    found = tables["gpu_work"]
    work = _work(found)
    kernel, memcpy, memset = (equals(found["kind"], kind) for kind in ("kernel", "memcpy", "memset"))
    comm = kernel & is_communication(found, tables["kernel_names"])
    kinds = [work.take(mask) for mask in (kernel & ~comm, comm, memcpy, memset)]
    parts = []
    for number in np.unique(np.concatenate([kind.device for kind in kinds])):
        of_device = [kind.take(kind.device == number) for kind in kinds]
        starts, lengths, counts = _segments(of_device)
        idle = np.logical_and.reduce([count == 0 for count in counts])
        following = Work(*(np.full(len(starts), NULL) for _ in Work._fields))
        for column, values in zip(following, _first_launched(of_device, (starts + lengths)[idle]), strict=True):
            column[idle] = values
        columns = {
            "device": nullable(np.full(len(starts), number), pa.int32()),
            "start_ns": pa.array(starts),
            "dur_ns": pa.array(lengths),
            **dict(zip(COUNTS, map(pa.array, counts), strict=True)),
            **{f"next_{name}": nullable(column) for name, column in zip(CALL, following[3:], strict=True)},
        }
        parts.append(pa.table(columns))
    if parts:
        return pa.concat_tables(parts)
    int32 = dict.fromkeys(("device", *COUNTS), pa.int32())
    return pa.schema([(name, int32.get(name, pa.int64())) for name in COLUMNS]).empty_table()


def is_communication(kernels: pa.Table, kernel_names: pa.Table) -> Mask:
    """Whether each kernel is of the family communication."""
    (of_kernels, known), texts = text_codes([kernels["name"], kernel_names["name"]])
    communication = np.zeros(len(texts) + 1, bool)  # The last is for -1, which stands for no name.
    communication[known[equals(kernel_names["family"], "communication")]] = True
    return communication[of_kernels]


def _work(table: pa.Table) -> Work:
    """Return the work of a table; a length that is not known or negative counts as 0."""
    device, start, dur, *call = (ints(table, c) for c in ("device", "start_ns", "dur_ns", *CALL))
    return Work(device, start, start + np.maximum(dur, 0), *call)


def gpu_spans(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the first start and last end of each device, in the columns of the table `gpu_spans`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    segments = tables["gpu_segments"]
    ends = pc.add(segments["start_ns"], segments["dur_ns"])
    times = pa.table({"device": segments["device"], "first": segments["start_ns"], "last": ends})
    found = times.group_by("device").aggregate([("first", "min"), ("last", "max")]).sort_by("device")
    return found.select(["device", "first_min", "last_max"]).rename_columns(["device", "first_ns", "last_ns"])


def _segments(kinds: Sequence[Work]) -> tuple[Ints, Ints, list[npt.NDArray[np.int32]]]:
    """Return start and length of each segment of one device, and for each kind of work how many run there."""
    times = np.concatenate([edges for kind in kinds for edges in (kind.start, kind.end)])
    lengths = [len(kind.start) for kind in kinds]
    changes = np.repeat(np.array([1, -1] * len(kinds), np.int8), np.repeat(lengths, 2))
    kind_of = np.repeat(np.arange(len(kinds), dtype=np.int8), np.array(lengths) * 2)
    order = np.argsort(times, kind="stable")  # fast, because files are nearly sorted
    times, changes, kind_of = times[order], changes[order], kind_of[order]
    last = np.append(times[1:] != times[:-1], True)  # the last edge of each time
    times = times[last]
    counts = [np.cumsum(changes * (kind_of == kind), dtype=np.int32)[last] for kind in range(len(kinds))]
    begins = np.logical_or.reduce([np.append(True, count[1:] != count[:-1]) for count in counts])
    begins[1:][-1:] = False  # Nothing runs from the last edge on.
    starts = times[begins]
    return starts, np.append(starts[1:], times[-1]) - starts, [count[begins] for count in counts]


def _first_launched(kinds: Sequence[Work], ends: Ints) -> Work:
    """Return the work of one device that starts at each of the ends of its idle time.

    Of work that starts together, the one whose launch call started first; unknown calls come last. Work of 0 ns ends no
    idle time but the last.
    """
    work = Work(*map(np.concatenate, zip(*kinds, strict=True)))
    work = work.take((work.end > work.start) | (work.start == work.end.max()))
    ids = np.where(work.correlation_id > 0, work.correlation_id, NULL)
    order = np.lexsort((last_if_null(ids), last_if_null(work.call_start), work.start))
    first = np.append(True, work.start[order][1:] != work.start[order][:-1])[: len(order)]
    chosen = work.take(order[first])
    return chosen.take(np.searchsorted(chosen.start, ends))


DERIVED = (
    Derived(
        declare_table(
            "gpu_segments",
            "a stretch of time in which a GPU runs the same number of kernels, copies and fills",
            ("device", "int32", "", "GPU index as the process numbered it"),
            ("start_ns", "int64", "ns", "start; the segments of a device follow each other, first start to last end"),
            ("dur_ns", "int64", "ns", "length; 0 only where all work of the device has length 0"),
            ("compute_kernels", "int32", "", "kernels that run and are not communication"),
            ("comm_kernels", "int32", "", "kernels of the family communication that run"),
            ("memcpys", "int32", "", "copies that run"),
            ("memsets", "int32", "", "fills that run"),
            (
                "next_correlation_id",
                "int64",
                "",
                "while the GPU is idle, correlation_id of the work that ends it; of several, of the one launched first",
            ),
            ("next_call_tid", "int64", "", "thread of the launch call of that work; NULL if unknown"),
            ("next_call_start_ns", "int64", "ns", "start of that call"),
            ("next_call_dur_ns", "int64", "ns", "length of that call"),
        ),
        version=4,
        reads=READS,
        compute=gpu_segments,
    ),
    Derived(
        declare_table(
            "gpu_spans",
            "a GPU with work",
            ("device", "int32", "", "GPU index as the process numbered it"),
            ("first_ns", "int64", "ns", "first start of its work"),
            ("last_ns", "int64", "ns", "last end of its work"),
        ),
        version=1,
        reads={"gpu_segments": ("device", "start_ns", "dur_ns")},
        compute=gpu_spans,
    ),
)
