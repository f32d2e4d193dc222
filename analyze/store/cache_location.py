"""The folder of the cache: $TRACEQUARRY_CACHE, else in the folder of the user's caches."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of the cached stores: $TRACEQUARRY_CACHE, else in the user's cache folder."""
    if own := os.environ.get("TRACEQUARRY_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tracequarry"
