"""Stores for raw files that were given to a query directly, made on first use and kept up to date."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from analyze.errors import InputError
from analyze.store import Store


def cache_folder() -> Path:
    """Where the cached stores lie: $TRACEQUARRY_CACHE, else the user's cache folder."""
    if own := os.environ.get("TRACEQUARRY_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tracequarry"


def open_stores(paths: Sequence[Path], progress: object = None) -> tuple[list[Store], list[str]]:
    """Stores for what the user gave, and the warnings of what had to be ingested for it.

    A store is opened as it is. Raw files and folders are ingested into the cache: one store for each path, brought up
    to date when a file's size or modification time changed. Raises InputError.
    """
    stores: list[Store] = []
    warnings: list[str] = []
    for path in paths:
        if path.is_dir() and Store.is_store(path):
            stores.append(Store(path))
        else:
            store, new = _cached(path, progress)
            stores.append(store)
            warnings += new
    if not any(s.snapshot.runs for s in stores):
        raise InputError(f"{paths[0] if paths else 'PATH'}: the store has no runs")
    return stores, warnings


def _cached(path: Path, progress: object) -> tuple[Store, list[str]]:
    from analyze.discover import discover

    name = hashlib.blake2b(str(path.resolve()).encode(), digest_size=8).hexdigest()
    store = Store(cache_folder() / name)
    runs = discover([path])
    from analyze.ingest import ingest, is_current

    wanted = {r.run_id for r in runs}
    if wanted == set(store.snapshot.runs) and all(is_current(store, r) for r in runs):
        return store, []
    result = ingest(runs, store, progress=progress)  # type: ignore[arg-type]
    with store.lock():
        for run_id in set(store.snapshot.runs) - wanted:
            store.forget(run_id)
    return store, result.warnings
