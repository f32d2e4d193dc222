"""The three kinds of error: bad input, this machine, and our own faults. Each message is one sentence."""

from __future__ import annotations

import errno


class ReportedError(Exception):
    """A failure that a command reports in one sentence."""

    exit_code = 1
    """The exit code of `collect`. `analyze` exits with 2, because `analyze compare --fail-if` uses 1."""


class InputError(ReportedError):
    """Bad input: a missing file, an unknown name, an option that contradicts another."""

    exit_code = 2


class MachineError(ReportedError):
    """What stops this machine, not the input: a full disk, a missing permission, a killed process."""


class InternalError(ReportedError):
    """A fault of tracequarry itself, which the user should report."""


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MACHINE_ERRORS = (*DISK_FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENOMEM)
"""Errors of the operating system that are the machine's fault, not the input's."""


def os_failure(error: OSError, sentence: str) -> ReportedError:
    """Return the exception to raise for an OSError: MachineError or InputError."""
    return MachineError(sentence) if error.errno in MACHINE_ERRORS else InputError(sentence)
