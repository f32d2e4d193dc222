"""Leaves a mark of how far each process came, so that `collect` can say why nothing was recorded."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

STAGES = {
    "killed": "a process that imported torch was killed before its recording could be written",
    "forked": (
        "the process that was recorded called no torch operator, and processes forked from a recorded one are not "
        "recorded; import torch after the fork, or start them by spawn"
    ),
    "never called": "no process of the program called the function of --step-function",
    "idle with a GPU": (
        "no process used CUDA, a process group, a module or an optimizer; on a node with a GPU, CUDA_VISIBLE_DEVICES= "
        "records CPU operators"
    ),
    "idle": "the program imported torch, but called no operator of it",
    "no torch": "no Python process of the program imported torch",
}
"""Why a process recorded nothing: stage -> sentence. The first that any process has is the cause."""
NO_MARK = (
    "no Python process of the program loaded the recorder: a script replaces or clears PYTHONPATH, or Python ran with "
    "-S, -E or -I, or no Python ran"
)


def mark(config: dict[str, Any], stage: str) -> None:
    """Note the stage of this process, in place of its previous one."""
    with contextlib.suppress(OSError):
        path = Path(config["work"]) / f"mark-{socket.gethostname()}-{os.getpid()}"
        path.write_text(stage, encoding="utf-8")


def cause(work: Path) -> str:
    """Say why nothing was recorded, in one sentence."""
    marks = {path.read_text(encoding="utf-8") for path in work.glob("mark-*")}
    return next((sentence for stage, sentence in STAGES.items() if stage in marks), NO_MARK)
