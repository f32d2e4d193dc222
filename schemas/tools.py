"""The profilers' own programs, which record and which export what they recorded, and where they are found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from schemas.isolation import which


class Tool(NamedTuple):
    """A program that comes with a profiler."""

    name: str
    """Of the program."""
    product: str
    url: str
    variable: str
    """Environment variable that holds its path, where it is not on PATH."""
    usual: tuple[str, ...] = ()
    """Patterns below / of where it is installed without being on PATH."""

    def find(self) -> str | None:
        """Absolute path of the program: as the variable says, else on PATH, else in a usual place; None without one."""
        asked = os.environ.get(self.variable)
        if found := which(asked or self.name):
            return os.path.abspath(found)  # noqa: PTH100 (Path.resolve would follow links)
        if asked:
            return None
        usual = sorted((p for pattern in self.usual for p in Path("/").glob(pattern)), reverse=True)
        return str(usual[0]) if usual else None


NSYS = Tool("nsys", "Nsight Systems", "https://developer.nvidia.com/nsight-systems", "TRACEQUARRY_NSYS")
NCU = Tool(
    "ncu",
    "Nsight Compute",
    "https://developer.nvidia.com/nsight-compute",
    "TRACEQUARRY_NCU",
    # The CUDA packages install it there without putting it on PATH.
    ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu"),
)
