"""The three kinds of error: bad input, this machine, and our own faults. Each message is one sentence."""

from __future__ import annotations


class CollectError(Exception):
    """A failure that the command reports in one sentence; it exits with `exit_code`."""

    exit_code = 1


class InputError(CollectError):
    """Bad input: an unknown model, a missing data set, an option that contradicts another."""

    exit_code = 2


class MachineError(CollectError):
    """What stops this machine, not the input: a full disk, a missing permission, a profiler that does not work."""


class InternalError(CollectError):
    """A fault of tracequarry itself, which the user should report."""
