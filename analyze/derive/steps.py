"""The training steps of a rank, as its ranges say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.interface import Derived
from analyze.derive.numpy_columns import equals
from schemas.table_declaration import INTERVAL, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

READS = {"ranges": ("origin", "name", "start_ns", "dur_ns")}
_LARGEST = 2**31 - 1


def steps(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the steps of a rank in order of time, in the columns of the table `recorded_steps`.

    A step is a range of the profiler (ProfilerStep#N). A rank without these has the NVTX ranges named `step`. Of
    nested ranges, the outermost is the step.
    """
    import pyarrow as pa

    ranges = tables["ranges"].select(["origin", "name", "start_ns", "dur_ns"])
    found = ranges.filter(pa.array(equals(ranges["origin"], "profiler_step") & ranges["dur_ns"].is_valid().to_numpy()))
    if not found.num_rows:
        named = equals(ranges["origin"], "nvtx") & equals(ranges["name"], "step")
        found = ranges.filter(pa.array(named & ranges["dur_ns"].is_valid().to_numpy()))
    start, length = (found[c].to_numpy() for c in ("start_ns", "dur_ns"))
    names = found["name"].to_pylist()
    end = start + length
    order = np.lexsort((-end, start))
    # A range that ends no later than an earlier one lies inside it.
    reached = np.maximum.accumulate(end[order])
    outermost = order[np.append(True, end[order][1:] > reached[:-1])[: len(order)]]
    numbers = [_number(names[i]) for i in outermost]
    following = [*start[outermost][1:].tolist(), None][: len(outermost)]
    return pa.table(
        {
            "turn": pa.array(np.arange(len(outermost)), pa.int32()),
            "number": pa.array(numbers, pa.int32()),
            "start_ns": pa.array(start[outermost], pa.int64()),
            "dur_ns": pa.array(length[outermost], pa.int64()),
            "next_ns": pa.array(following, pa.int64()),
        }
    )


def _number(name: str | None) -> int | None:
    digits = (name or "")[len((name or "").rstrip("0123456789")) :]
    significant = digits.lstrip("0")
    if not digits or len(significant) > len(str(_LARGEST)):
        return None
    number = int(significant or "0")
    return number if number <= _LARGEST else None


DERIVED = (
    Derived(
        declare_table(
            "recorded_steps",
            "a training step, as a range of the profiler or an NVTX range `step` says",
            ("turn", "int32", "", "position among the steps of the rank, from 0"),
            ("number", "int32", "", "the number in the range's name; NULL where it has none"),
            *INTERVAL,
            ("next_ns", "int64", "ns", "start of the step that follows; NULL for the last"),
        ),
        version=1,
        reads=READS,
        compute=steps,
    ),
)
