"""Installed packages: of tracequarry's extras, and the error for one that is missing."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

from schemas.errors import InputError


def missing(purpose: str, extra: str, why: ImportError | str) -> InputError:
    """Return the error for a purpose that needs an extra which is not installed."""
    return InputError(f"{purpose}: needs `pip install 'tracequarry[{extra}]'` ({why})")


def packages() -> dict[str, list[str]]:
    """Return the packages of each extra, from the metadata of the installed tracequarry."""
    try:
        declared = requires("tracequarry") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for requirement in declared:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""\bextra\s*==\s*["']([\w-]+)["']""", requirement)
        if name and extra:
            found.setdefault(extra[1], []).append(name[0])
    return found


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
