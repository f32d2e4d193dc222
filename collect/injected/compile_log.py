"""Makes torch log what torch.compile does: it reads TORCH_TRACE when it is imported, and writes nothing without it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

LOGS = "compile_logs"
"""Folder in the scratch folder of a pass."""
WORKERS = "workers"
"""Folder in it for the processes of a built-in model."""


def switch_on(work: str) -> None:
    """Let this process log into a folder of its own. A TORCH_TRACE that the program sets stays."""
    before = os.environ.get("TORCH_TRACE")
    if before is None or before.startswith(f"{work}{os.sep}"):  # a parent's
        os.environ["TORCH_TRACE"] = str(Path(work, LOGS, f"process-{socket.gethostname()}-{os.getpid()}"))


def has_log() -> bool:
    """Whether this process has a log."""
    folder = os.environ.get("TORCH_TRACE", "")
    return folder.endswith(f"-{os.getpid()}") and Path(folder).is_dir()
