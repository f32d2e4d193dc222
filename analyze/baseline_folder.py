"""Baselines: the runs that others are compared with, under a name.

A baseline is a store in a folder of baselines, FOLDER/NAME, so it holds what the runs were, and every later version
reads it. The folder can be committed, or be a URL of object storage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from analyze.errors import InputError, os_failure
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import IngestResult, ingest
from analyze.ingestion.raw_files import given_paths
from analyze.sources.storage import file_system, storage_errors
from analyze.store.object_storage import existing_store, store_at
from analyze.store.store import Store
from schemas.manifest import is_run_id
from schemas.urls import as_given, url_of

DEFAULT_FOLDER = Path(".tracequarry") / "baselines"
VARIABLE = "TRACEQUARRY_BASELINES"


def folder_of(given: str | os.PathLike[str] | None) -> str:
    """Return the folder of baselines: as given, else of the environment, else below the current directory."""
    return as_given(given) if given is not None else os.environ.get(VARIABLE) or str(DEFAULT_FOLDER)


def place_of(name: str, folder: str) -> str:
    """Return where a baseline is. Raises InputError if the name is invalid."""
    if not is_run_id(name):
        raise InputError(f"baseline {name!r}: a name has letters, digits, dots, hyphens and underscores")
    return f"{folder.rstrip('/')}/{name}"


def set_baseline(name: str, runs: Sequence[Path], folder: str) -> IngestResult:
    """Read runs into the baseline of this name; an older one is replaced once they are read. Raises InputError."""
    place = place_of(name, folder)
    fresh = place_of(f"{name}.new", folder)
    _remove(fresh)
    found = discover(given_paths(runs))
    result = ingest(found, store_at(fresh))
    result.warnings[:0] = found.warnings
    _remove(place)
    _move(fresh, place)
    return result


def open_baseline(name: str, folder: str) -> Store:
    """Return the store of a baseline. Raises InputError if there is none."""
    place = place_of(name, folder)
    store = store_at(place)
    if not store.exists():
        known = ", ".join(baseline_names(folder)) or "none"
        raise InputError(
            f"there is no baseline {name!r} in {folder} (there are: {known}); analyze baseline set creates one"
        )
    return store


def baseline_names(folder: str) -> list[str]:
    """Return the names of the baselines in a folder. Raises InputError."""
    url = url_of(folder)
    if url is None:
        try:
            found = [p.name for p in Path(folder).iterdir() if Store.is_store(p)]
        except FileNotFoundError:
            return []
        except OSError as e:
            raise os_failure(e, f"{folder}: cannot be read: {e.strerror}") from e
    else:
        system, root = file_system(url)
        with storage_errors(url):
            try:
                listed = [str(path).rstrip("/").rsplit("/", 1)[-1] for path in system.ls(root, detail=False)]
            except FileNotFoundError:
                return []
        found = [name for name in listed if is_run_id(name) and store_at(f"{url}/{name}").exists()]
    return sorted(name for name in found if is_run_id(name) and not name.endswith(".new"))


def remove_baseline(name: str, folder: str) -> None:
    """Remove a baseline. Raises InputError if there is none."""
    open_baseline(name, folder).release()
    _remove(place_of(name, folder))


def _move(place: str, target: str) -> None:
    """Rename a store. Raises InputError."""
    url = url_of(place)
    if url is None:
        try:
            Path(place).rename(target)
        except OSError as e:
            raise os_failure(e, f"{target}: cannot be written: {e.strerror}") from e
        return
    system, root = file_system(url)
    _, new_root = file_system(target)
    with storage_errors(url):
        for file in system.find(root):
            system.cp_file(file, new_root + file.removeprefix(root))
    _remove(place)


def _remove(place: str) -> None:
    """Remove a store; nothing if there is none. Raises InputError."""
    if not store_at(place).exists():
        return
    existing_store(place).release()
    url = url_of(place)
    if url is None:
        try:
            shutil.rmtree(place)
        except OSError as e:
            raise os_failure(e, f"{place}: cannot be removed: {e.strerror or e}") from e
        return
    system, root = file_system(url)
    with storage_errors(url):
        system.rm(root, recursive=True)
