"""The version of this package."""

from __future__ import annotations


def version() -> str:
    """Return the installed version, or `(not installed)`."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("tracequarry")
    except PackageNotFoundError:
        return "(not installed)"
