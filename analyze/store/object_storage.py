"""Stores on object storage: s3://, gs://, az:// and other protocols of fsspec.

Objects are written atomically, but cannot be renamed or locked. So every change of a store is a new catalogue,
`catalogue/00000007.json`. A writer puts the next number only if it does not exist (`If-None-Match: *`). The second of
two concurrent writers reads the first one's change and puts its own under the number after that. File names are
unique, and files that a change replaced stay until the next change.
"""

from __future__ import annotations

import datetime
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources.storage import described, file_system, storage_errors
from analyze.store.catalogue import Catalogue, StoredRun, TableFile, decode, encode, table_path
from analyze.store.file_digest import crc32
from analyze.store.store import ORPHAN_TTL_S, SHARDS, StagedFile, Store
from schemas.urls import local_path, url_of

_CATALOGUE = "catalogue"
_CATALOGUES = re.compile(rf"{_CATALOGUE}/([0-9]{{8,18}})\.json")
"""Names of catalogues with their numbers; other objects are ignored."""
_KEPT = 2
"""Catalogues that are retained: the current one, and the previous one for readers that opened it."""
_TRIES = 100


def store_at(path: str | PathLike[str]) -> Store:
    """Return the store in a folder or at a URL; it need not exist. Raises InputError."""
    url = url_of(path)
    if url is None:
        return Store(Path(path))
    here = local_path(url)
    return RemoteStore(url) if here is None else Store(Path(here))


def existing_store(path: str | PathLike[str]) -> Store:
    """Return the store in a folder or at a URL. Raises InputError if there is none."""
    store = store_at(path)
    if not store.exists():
        raise InputError(f"{store}: not a store; `analyze ingest PATHS --store {store}` creates one")
    return store


def store_to_json(store: Store) -> dict[str, str]:
    """Serialise a store and its runs for another process."""
    return {"place": str(store), "catalogue": encode(store.snapshot).decode()}


def store_from_json(data: Mapping[str, str]) -> Store:
    """Open the store of `store_to_json`; the other process keeps its files from being removed. Raises InputError."""
    store = store_at(data["place"])
    store.snapshot = decode(data["catalogue"].encode(), data["place"])
    return store


class RemoteStore(Store):
    """A store at a URL. Raises InputError for errors of the storage and unknown protocols."""

    def __init__(self, url: str):
        self._url = url
        self._number = 0
        self._fs, self._root = file_system(url)
        self._held = None
        self.snapshot = self._read()

    def __str__(self) -> str:
        return self._url

    @property
    def filesystem(self) -> Any:
        """The fsspec file system, for DuckDB."""
        if "gs" in self._fs.protocol and "open" not in vars(self._fs):
            # gcsfs prefetches in the background and reports errors for unfinished requests at exit.
            self._fs.open = partial(self._fs.open, cache_type="readahead")
        return self._fs

    def for_readers(self, files: Iterable[TableFile]) -> list[str]:
        """Return the URLs of files, with the first name of the file system's protocol."""
        protocol = self._fs.protocol if isinstance(self._fs.protocol, str) else self._fs.protocol[0]
        return [f"{protocol}://{self._root}/{f.path}" for f in files]

    def exists(self) -> bool:
        """Return whether the store exists."""
        return self._number > 0

    def make(self) -> None:
        """Create the store if it does not exist."""
        if not self.exists():
            self._replace({})

    def hold(self) -> None:
        """Read the catalogue again; its files stay until the second change after this."""
        self.snapshot = self._read()

    def release(self) -> None:
        """Do nothing: there is no lock."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Read the catalogue again. Other writers may work concurrently; the last change of a run counts."""
        self.snapshot = self._read()
        self.make()
        yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a folder on this machine."""
        with tempfile.TemporaryDirectory(prefix="tracequarry-") as folder:
            yield Path(folder)

    def damage_of(self, files: Iterable[TableFile]) -> str | None:
        """Return None: objects are written atomically, and a request for each takes longer than most questions."""
        return None

    def place(self, run_id: str, file: StagedFile, mark: str) -> TableFile:
        """Upload a file."""
        path = table_path(file.table, run_id, file.ranks, mark)
        with self._errors():
            self._fs.put_file(str(file.path), self._at(path))
        return TableFile(path=path, bytes=file.path.stat().st_size, crc32=crc32(file.path), ranks=file.ranks)

    def _mark(self, generation: int) -> str:
        return secrets.token_hex(4)  # two writers may write the same generation

    def fetch(self, file: TableFile, folder: Path) -> Path:
        """Download a file."""
        target = folder / f"{secrets.token_hex(8)}.parquet"
        try:
            with self._errors():
                self._fs.get_file(self._at(file.path), str(target))
        except FileNotFoundError as e:
            raise InputError(f"{self}/{file.path}: does not exist any more") from e
        return target

    @contextmanager
    def shard_at_work(self, name: str) -> Iterator[Path]:
        """Yield a folder on this machine; `sweep` ignores recent uploads."""
        with self.staging() as folder:
            yield folder

    def write_shard(self, name: str, data: bytes) -> None:
        """As of a store in a folder."""
        with self._errors():
            self._fs.pipe_file(self._at(f"{SHARDS}/{name}"), data)

    def read_shards(self) -> dict[str, bytes]:
        """As of a store in a folder."""
        names = sorted(n for n in self._listed(SHARDS) if n.endswith(".json") and n.count("/") == 2)
        with self._errors():
            return {n.removeprefix(f"{SHARDS}/"): self._fs.cat_file(self._at(n)) for n in names}

    def forget_shards(self, folder: str) -> None:
        """As of a store in a folder. Removes the plan first: without it, the other files are ignored."""
        names = sorted(self._listed(f"{SHARDS}/{folder}"), key=lambda n: not n.endswith("plan.json"))
        self._remove(names)

    def sweep(self, ttl_s: float = ORPHAN_TTL_S) -> None:
        """Remove files of writers that ended more than `ttl_s` seconds ago without a commit."""
        listed = self._listed("")
        parts = [n.rsplit("/", 1)[1].split(".") for n in listed if n.startswith(f"{SHARDS}/")]
        marks = {part[1] for part in parts if len(part) > 2}
        known = {f.path for run in self.snapshot.runs.values() for f in run.table_files} | set(self.snapshot.retired)
        unnamed = [n for n in listed if n.endswith(".parquet") and "/run_id=" in n and n not in known]
        now = datetime.datetime.now(datetime.UTC)
        with self._errors():
            self._remove(
                n
                for n in unnamed
                if n.rsplit("/", 1)[1].split(".")[1] not in marks
                and (now - self._fs.modified(self._at(n))).total_seconds() > ttl_s
            )

    def _replace(self, runs: dict[str, StoredRun], commits: Iterable[str] | None = None) -> None:
        """Put the next catalogue with the changes from the snapshot to `runs` and `commits`."""
        before, known = self.snapshot.runs, self.snapshot.commits
        made = list(known if commits is None else commits)
        changed = {run_id: run for run_id, run in runs.items() if before.get(run_id) is not run}
        gone = set(before) - set(runs)
        for _ in range(_TRIES):
            old = self.snapshot
            merged = {r: run for r, run in old.runs.items() if r not in gone} | changed
            named = {f.path for run in merged.values() for f in run.table_files}
            retired = sorted(f.path for run in old.runs.values() for f in run.table_files if f.path not in named)
            others = [mark for mark in old.commits if mark not in known]
            new = Catalogue(runs=merged, retired=retired, commits=made + others)
            try:
                with self._errors():
                    self._fs.pipe_file(self._at(_catalogue_name(self._number + 1)), encode(new), mode="create")
            except FileExistsError:
                self.snapshot = self._read()
                continue
            self._number, self.snapshot = self._number + 1, new
            older = [name for number, name in self._catalogues() if number <= self._number - _KEPT]
            self._remove([*(n for n in old.retired if n not in named), *older])
            return
        raise InputError(f"{self}: other writers change it faster than this one")

    def _read(self) -> Catalogue:
        for _ in range(_TRIES):
            found = self._catalogues()
            self._number, name = max(found, default=(0, ""))
            if not found:
                with self._errors():
                    described(self._fs, self._root)  # fsspec lists nothing for a web server that cannot be reached
                return Catalogue(runs={})
            try:
                with self._errors():
                    return decode(self._fs.cat_file(self._at(name)), f"{self}/{name}")
            except FileNotFoundError:
                continue  # two changes in between
        raise InputError(f"{self}: changes faster than it can be read")

    def _catalogues(self) -> list[tuple[int, str]]:
        """Return the numbers and names of the catalogues."""
        return [(int(m[1]), m[0]) for name in self._listed(_CATALOGUE) if (m := _CATALOGUES.fullmatch(name))]

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _listed(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, relative to the store."""
        with self._errors():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._at(folder))
            except FileNotFoundError:
                return []
        start = len(self._root.rstrip("/")) + 1
        return [name[start:] for name in found]

    def _remove(self, names: Any) -> None:
        for name in names:
            try:
                with self._errors():
                    self._fs.rm_file(self._at(name))
            except FileNotFoundError:
                continue  # another writer was faster

    def _errors(self) -> AbstractContextManager[None]:
        return storage_errors(self._url)


def _catalogue_name(number: int) -> str:
    return f"{_CATALOGUE}/{number:08d}.json"
