"""Open what the user names for queries: stores directly, raw files and outdated stores through the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from analyze.cpus import cpus
from analyze.errors import InputError
from analyze.ingestion.cached_stores import current_entry
from analyze.ingestion.derived_version import is_stale
from analyze.ingestion.progress import Progress
from analyze.ingestion.raw_files import files_state, given_paths
from analyze.ingestion.run_folders import by_store
from analyze.sources.remote import RawPath
from analyze.store.catalogue import Catalogue, encode
from analyze.store.object_storage import store_at
from analyze.store.store import Store


def open_stores(
    paths: Sequence[Path],
    progress: Progress | None = None,
    on_read: Callable[[str], object] = lambda text: None,
) -> tuple[list[Store], list[str]]:
    """Open a store for each path of the user; return them and the warnings of the ingest.

    A store is opened directly. Raw files and folders are ingested into the cache: each run folder into a store of its
    own. All others, and several run folders of nodes of a job, are ingested into one store (`by_store`). An entry is
    updated when a size, modification time or entity tag changes; `on_read` then receives what the files were read as.
    Of runs that are in several stores, the first one is read. Raises InputError.
    """
    progress = progress or Progress()
    stores: list[Store] = []
    warnings: list[str] = []
    raw: list[RawPath] = []
    given = given_paths(paths)
    for path in given:
        store = store_at(str(path))
        if store.exists():
            warnings += store.open()
            stores += [*_derived_again(store, str(path.resolve()), progress, warnings), store]
        else:
            raw.append(path)
    stores += [_read(together, progress, warnings, on_read) for together in by_store(raw)]
    if not any(s.snapshot.runs for s in stores):
        raise InputError(f"{given[0] if given else 'PATH'}: the store has no runs")
    return stores, warnings


def _derived_again(store: Store, path: str, progress: Progress, warnings: list[str]) -> list[Store]:
    """Return the cached store with the outdated runs of a store, derived again; none if none is outdated."""
    runs = store.snapshot.runs
    stale = {r for r in runs if is_stale(runs, r)}
    if not stale:
        return []
    full = {runs[r].full for r in stale}  # from which GPU-only blocks are derived
    outdated = {r: run for r, run in runs.items() if r in stale | full}

    def derive(entry: Store) -> set[str]:
        from analyze.ingestion.derive_again import derive_again
        from analyze.ingestion.ingest import sentences

        with sentences(entry), entry.lock():
            derive_again(store, outdated, entry, cpus(), progress)
        warnings.append(
            f"{store}: the derived tables of {len(stale)} run(s) are of another version; they were derived again into "
            f"the cache; `analyze compact {store}` replaces them"
        )
        return set(outdated)

    return [current_entry([path], lambda: encode(Catalogue(runs=outdated)).decode(), derive)]


def _read(paths: list[RawPath], progress: Progress, warnings: list[str], on_read: Callable[[str], object]) -> Store:
    """Return the cached store of raw files."""

    def ingest(entry: Store) -> set[str]:
        from analyze.ingestion.discover import discover
        from analyze.ingestion.ingest import ingest

        found = discover(paths, entry.raw_files())
        result = ingest(found, entry, progress=progress)
        warnings.extend(found.warnings + result.warnings)
        on_read(result.read_as)
        paths[:] = given_paths(map(str, paths))  # list again
        return {r.run_id for r in found} - set(result.failed)

    return current_entry([str(p.resolve()) for p in paths], partial(files_state, paths, progress), ingest)
