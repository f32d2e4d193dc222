"""Says in one sentence what went wrong: an exception in a worker, a dead process, a full disk."""

from __future__ import annotations

import errno
import re
import shutil
import signal
from pathlib import Path

from collect.spec import RankReport
from collect.trace_files import ALMOST_NOTHING
from schemas.files import os_error_sentence

LONGEST = 300
"""Characters of an exception's message that are passed on."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_disk_full(error: BaseException) -> bool:
    """Whether the exception means that nothing more can be written."""
    return isinstance(error, OSError) and error.errno in FULL_DISK


def disk_sentence(folder: str | Path | None) -> str:
    """What to say when the disk that holds `folder` is full."""
    where = f" that holds {folder}" if folder else ""
    return f"the disk{where} is full; free some space or write to another with --output"


def sentence(error: BaseException) -> str:
    """One sentence for an exception that ended a worker."""
    text = " ".join(str(error).split())
    first = next(iter(str(error).strip().splitlines()), "").strip()
    if "Original Traceback" in text:
        # Raised again out of a DataParallel replica or a data loader's process: the cause is the last exception named.
        causes = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit|Interrupt)): (.+)$", str(error), re.M)
        where = first.removeprefix("Caught ").partition(" in ")[2].rstrip(".")
        if causes:
            return f"{causes[-1][0]}: {causes[-1][1][:LONGEST]}" + (f" (in {where})" if where else "")
    if type(error).__name__ == "OutOfMemoryError" or "CUDA out of memory" in text:
        tried = re.search(r"Tried to allocate ([\d.]+ \w+)", text)
        wanted = f" (a request of {tried[1]} failed)" if tried else ""
        return f"out of GPU memory{wanted}; use a smaller --batch-size or --image-size"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate memory" in text:
        return "out of host memory; use a smaller --batch-size or fewer --workers"
    if "Unexpected bus error encountered in worker" in text:
        return "out of shared memory (/dev/shm) for the data loader; use fewer --workers or enlarge it"
    if is_disk_full(error):
        return disk_sentence(getattr(error, "filename", None))
    # torch's messages go on with advice and stack traces on further lines.
    return f"{type(error).__name__}: {first[:LONGEST]}" if first else type(error).__name__


def signal_sentence(number: int) -> str:
    """What to say of a process that a signal ended."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "unknown"
    hint = ""
    if number == signal.SIGKILL:
        hint = "; the kernel does that when host memory runs out"
    elif number == signal.SIGBUS:
        hint = "; a full /dev/shm or disk does that"
    return f"was killed by signal {number} ({name}){hint}"


def diagnose(
    exit_code: int, reports: list[RankReport], exit_codes: dict[int, int], folder: Path, ranks: int, program: bool
) -> str | None:
    """Why a pass failed, in one sentence; None when it did not.

    `exit_code` is that of the command (negative is minus a signal), `exit_codes` those of failed ranks,
    `folder` where the pass writes, `ranks` how many processes there were, `program` whether it was the user's own.
    """
    said = sorted((r for r in reports if not r.ok and r.reason and r.reason != "interrupted"), key=lambda r: r.when)
    if exit_code == 0 and not said:
        return None
    heard = {r.rank for r in reports}
    # A rank that a signal ended without a word comes before all that failed because of it. SIGTERM is what the
    # launcher sends to the others.
    for rank, code in sorted(exit_codes.items()):
        if code < 0 and -code != signal.SIGTERM and rank not in heard:
            return f"rank {rank} {signal_sentence(-code)}"
    if said and not (program and exit_code):
        prefix = f"rank {said[0].rank}: " if ranks > 1 and not said[0].usage else ""
        return prefix + str(said[0].reason)
    if _full(folder):
        return disk_sentence(folder)
    who = "the program" if program else "the training process"
    if exit_code < 0:
        return f"{who} {signal_sentence(-exit_code)}"
    # A shell, and Nsight's launchers, hand on a signal as 128 + its number.
    if exit_code > 128 and exit_code - 128 in {s.value for s in signal.Signals}:
        return f"{who} {signal_sentence(exit_code - 128)}"
    return f"{who} exited with code {exit_code}; its output is in {folder / 'log.txt'}"


def _full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < ALMOST_NOTHING
    except OSError:
        return False


def os_sentence(error: OSError) -> str:
    """One sentence for an OSError of the parent itself."""
    return disk_sentence(error.filename) if is_disk_full(error) else os_error_sentence(error)
