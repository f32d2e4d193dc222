"""The errors a user can act on: one sentence each, shown without a traceback."""

from __future__ import annotations


class CollectError(Exception):
    """Something failed while collecting; the message is one sentence. The command exits with `exit_code`."""

    exit_code = 1


class UsageError(CollectError):
    """The input cannot be used: an unknown model, a missing data set, an option that contradicts another."""

    exit_code = 2


class ToolError(CollectError):
    """A profiler is missing or refuses to work; the message says what to do about it."""
