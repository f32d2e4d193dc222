"""The profilers' programs, which record and export, and where to find them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from schemas.isolation import which


class Tool(NamedTuple):
    """A program of a profiler."""

    name: str
    """File name of the program."""
    product: str
    url: str
    variable: str
    """Environment variable with its path, if it is not on PATH."""
    places: tuple[str, ...] = ()
    """Patterns below / where installers put it without adding it to PATH."""

    def find(self) -> str | None:
        """Return the program's absolute path: from the variable, else on PATH, else in `places`; None if missing."""
        chosen = os.environ.get(self.variable)
        if found := which(chosen or self.name):
            return os.path.abspath(found)  # noqa: PTH100 (Path.resolve would follow links)
        if chosen:
            return None
        return max((str(p) for pattern in self.places for p in Path("/").glob(pattern)), default=None)


NSYS = Tool("nsys", "Nsight Systems", "https://developer.nvidia.com/nsight-systems", "TRACEQUARRY_NSYS")
NCU = Tool(
    "ncu",
    "Nsight Compute",
    "https://developer.nvidia.com/nsight-compute",
    "TRACEQUARRY_NCU",
    # The CUDA packages install it there without adding it to PATH.
    ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu"),
)
