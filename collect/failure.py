"""Describes in one sentence what went wrong: an exception in a worker, a dead process, a full disk."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from collect.injected.trace_files import ALMOST_FULL_BYTES
from collect.rank_reports import RankReport
from schemas import errors
from schemas.errors import DISK_FULL, ReportedError
from schemas.files import os_error_sentence

MAX_MESSAGE = 300
"""Characters of an exception's message that are shown."""


def is_disk_full(error: BaseException) -> bool:
    """Whether the exception means that the disk or the quota is full."""
    return isinstance(error, OSError) and error.errno in DISK_FULL


def disk_sentence(folder: str | Path | None) -> str:
    """Describe that the disk of `folder` is full."""
    where = f" that holds {folder}" if folder else ""
    return f"the disk{where} is full; free some space or write to another with --output"


def os_sentence(error: OSError) -> str:
    """Describe an OSError of the `collect` process itself."""
    return disk_sentence(error.filename) if is_disk_full(error) else os_error_sentence(error)


def os_failure(error: OSError, prefix: str = "") -> ReportedError:
    """Return the exception to raise for an OSError: MachineError or InputError. A full disk needs no prefix."""
    return errors.os_failure(error, os_sentence(error) if is_disk_full(error) else prefix + os_sentence(error))


def sentence(error: BaseException) -> str:
    """Describe an exception that ended a worker."""
    text = " ".join(str(error).split())
    first_line = next(iter(str(error).strip().splitlines()), "").strip()
    if "Original Traceback" in text:
        # Raised again from a DataParallel replica or a data loader process: the cause is the last exception named.
        causes = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit|Interrupt)): (.+)$", str(error), re.M)
        where = first_line.removeprefix("Caught ").partition(" in ")[2].rstrip(".")
        if causes:
            return f"{causes[-1][0]}: {causes[-1][1][:MAX_MESSAGE]}" + (f" (in {where})" if where else "")
    if type(error).__name__ == "OutOfMemoryError" or "CUDA out of memory" in text:
        request = re.search(r"Tried to allocate ([\d.]+ \w+)", text)
        size = f" (a request of {request[1]} failed)" if request else ""
        return f"out of GPU memory{size}; use a smaller --batch-size or --image-size"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate memory" in text:
        return "out of host memory; use a smaller --batch-size or fewer --workers"
    if "Unexpected bus error encountered in worker" in text:
        return "out of shared memory (/dev/shm) for the data loader; use fewer --workers or enlarge it"
    if is_disk_full(error):
        return disk_sentence(getattr(error, "filename", None))
    # The further lines of torch's messages are advice and stack traces.
    return f"{type(error).__name__}: {first_line[:MAX_MESSAGE]}" if first_line else type(error).__name__


def signal_sentence(number: int) -> str:
    """Describe that a signal killed a process."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "unknown"
    hint = ""
    if number == signal.SIGKILL:
        hint = "; Linux does that when host memory runs out"
    elif number == signal.SIGBUS:
        hint = "; a full /dev/shm or disk does that"
    return f"was killed by signal {number} ({name}){hint}"


def diagnose(
    exit_code: int, reports: list[RankReport], exit_codes: dict[int, int], folder: Path, ranks: int, program: bool
) -> str | None:
    """Describe why a pass failed; None if it did not.

    `exit_code` is the command's (negative is minus a signal), `exit_codes` those of failed ranks, `folder` that of the
    pass, `ranks` the number of processes. `program` says whether it ran the user's program.
    """
    failed = sorted((r for r in reports if not r.ok and r.reason and r.reason != "interrupted"), key=lambda r: r.when)
    if exit_code == 0 and not failed:
        return None
    reported = {r.rank for r in reports}
    # A rank that a signal killed leaves no report, and caused the failures of the others. SIGTERM is what the launcher
    # sends to those.
    for rank, code in sorted(exit_codes.items()):
        if code < 0 and -code != signal.SIGTERM and rank not in reported:
            return f"rank {rank} {signal_sentence(-code)}"
    if failed and not (program and exit_code):
        prefix = f"rank {failed[0].rank}: " if ranks > 1 and not failed[0].bad_input else ""
        return prefix + str(failed[0].reason)
    if _is_full(folder):
        return disk_sentence(folder)
    subject = "the program" if program else "the training process"
    if exit_code < 0:
        return f"{subject} {signal_sentence(-exit_code)}"
    # A shell, and Nsight's launchers, pass on a signal as 128 + its number.
    if exit_code > 128 and exit_code - 128 in {s.value for s in signal.Signals}:
        return f"{subject} {signal_sentence(exit_code - 128)}"
    return f"{subject} exited with code {exit_code}; its output is in {folder / 'log.txt'}"


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < ALMOST_FULL_BYTES
    except OSError:
        return False
