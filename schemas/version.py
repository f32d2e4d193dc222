"""The version of this package."""

from __future__ import annotations


def version() -> str:
    """As it was installed; of a checkout that was not, a text that says so."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("tracequarry")
    except PackageNotFoundError:
        return "(not installed)"
