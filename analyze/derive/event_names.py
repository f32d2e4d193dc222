"""Rules for names and origins of CPU events that several derived tables share: async calls, step numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.numpy_columns import Mask

if TYPE_CHECKING:
    import pyarrow as pa

RANGES = ("record_function", "profiler_step")
"""Origins of PyTorch's ranges."""
_ASYNC = "^(nccl|gloo|mpi|ucc|xccl):"
_STEP = r"^ProfilerStep#\d+$"


def are_async(names: pa.Array) -> Mask:
    """Return which names are of asynchronous collectives, whose ranges end on another thread than they began on.

    A last value, False, is for the number -1 of an event without a name.
    """
    import pyarrow.compute as pc

    return np.append(pc.match_substring_regex(names, _ASYNC).to_numpy(zero_copy_only=False), False)


def without_step_numbers(names: pa.Array) -> pa.Array:
    """Return names in which each step of the profiler is called ProfilerStep*."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(names, _STEP, "ProfilerStep*")
