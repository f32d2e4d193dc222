"""Lists the packages that are installed for this Python."""

from __future__ import annotations

import importlib.metadata


def installed_packages() -> dict[str, str]:
    """Return the version of each installed distribution, by its name in lower case."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # Damaged distributions have no name, or no version.
        name, version = distribution.metadata["Name"], distribution.metadata["Version"]
        if name and version:
            found.setdefault(name.lower(), version)  # the first on the path is imported
    return dict(sorted(found.items()))
