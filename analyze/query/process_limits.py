"""Limits of memory (RLIMIT_DATA) and of written files (RLIMIT_FSIZE) for the process that runs SQL of users."""

from __future__ import annotations

import sys

V8_RESERVES = 600 << 20
"""Bytes that V8, which draws figures, reserves and hardly uses: 512 MiB for code, 64 MiB for data. RLIMIT_DATA counts
them."""


def limit_memory(most: float) -> None:
    """Limit the memory of this process and its children; above it they get a MemoryError or DuckDB's equivalent.

    The data segment counts (RLIMIT_DATA), not addresses that are reserved without access. Linux enforces it, macOS and
    Windows do not.
    """
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        allowed = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def forbid_files() -> None:
    """Let this process write to no file: what it opens for writing stays empty (RLIMIT_FSIZE). Pipes are not files."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
