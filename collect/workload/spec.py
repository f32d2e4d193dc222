"""What `collect run` writes for a worker process to read: one pass."""

from __future__ import annotations

import msgspec

from collect.options import RunOptions


class WorkerSpec(msgspec.Struct, kw_only=True):
    """One pass of the built-in workload."""

    options: RunOptions
    profiler: str
    folder: str
    """Folder of the pass, for raw files."""
    scratch: str
    """Folder for reports and temporary data."""
