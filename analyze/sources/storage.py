"""Storage behind URLs (s3://, gs://, az:// and other protocols of fsspec): listings and errors."""

from __future__ import annotations

import datetime
import email.utils
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

from analyze.errors import InputError, StorageError
from schemas.extras import missing

_TIMES = ("LastModified", "mtime", "last_modified", "Last-Modified", "modified", "updated", "created")
"""Names of the modification time in file systems of fsspec."""


class FileFacts(NamedTuple):
    """Facts of a file that change with its contents."""

    bytes: int
    mtime_ns: int
    """Modification time in whole seconds; 0 if the storage does not say it."""
    etag: str | None
    """Entity tag, if the storage has one."""


class Tree:
    """A lazy cache of the files at, below and next to a URL."""

    def __init__(self, url: str, files: dict[str, FileFacts | None] | None = None):
        self._url = url
        self._files = files or {}
        """By URL; None for URLs that are no file."""
        self._folders: dict[str, dict[str, None]] = {}
        """Names in each folder."""
        self._listed: list[str] = []
        """Folders that are fully listed."""

    @cached_property
    def system(self) -> Any:
        """The fsspec file system."""
        system, _ = file_system(self._url)
        with storage_errors(self._url):
            system.invalidate_cache()
        return system

    def name(self, url: str) -> str:
        """Return the file system's name of a file or folder."""
        name: str = self.system._strip_protocol(url)
        return name

    def known(self, url: str) -> FileFacts | None:
        """Return the cached facts of a file."""
        return self._files.get(url)

    def file(self, url: str) -> FileFacts | None:
        """Return the facts of a file; None if there is none. Raises StorageError."""
        if url not in self._files and not self._is_listed(url):
            with storage_errors(url):
                info = described(self.system, self.name(url))
            self._files[url] = _facts(url, info) if info.get("type") == "file" else None
        return self._files.get(url)

    def folder(self, url: str) -> Iterable[str]:
        """Return the names in a folder; empty if there is none. Raises StorageError."""
        if not self._is_listed(url):
            self._list(url)
        return self._folders.get(url, ())

    def below(self, url: str) -> list[str]:
        """Return the URLs of all files below a folder, sorted."""
        self.folder(url)
        return sorted(file for file, facts in self._files.items() if facts and file.startswith(f"{url}/"))

    def _is_listed(self, url: str) -> bool:
        return any(f"{url}/".startswith(f"{folder}/") for folder in self._listed)

    def _list(self, url: str) -> None:
        start = len(self.name(url).rstrip("/")) + 1
        with storage_errors(url):
            try:
                found = self.system.find(self.name(url), detail=True)
            except FileNotFoundError:
                found = {}
        self._listed.append(url)
        for name, info in found.items():
            parts = name[start:].split("/")
            if info.get("type") != "file" or {"", ".", ".."} & set(parts):
                continue  # keys of object storage need not be valid paths
            self._files[f"{url}/{name[start:]}"] = _facts(f"{url}/{name[start:]}", info)
            folder = url
            for part in parts:
                self._folders.setdefault(folder, {})[part] = None
                folder = f"{folder}/{part}"


def file_system(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and its name of the URL. Raises InputError."""
    with storage_errors(url):
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(url)
        return found


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Raise StorageError for all errors of a storage library, except FileNotFoundError and FileExistsError."""
    try:
        yield
    except (InputError, FileExistsError, FileNotFoundError, MemoryError):
        raise
    except ImportError as e:
        raise missing(url, "cloud", e) from e
    except Exception as e:
        raise StorageError(f"{url}: {type(e).__name__}: {str(e).partition(chr(10))[0]}") from e


def described(system: Any, name: str) -> dict[str, Any]:
    """Return the info of a file or folder; empty if there is none. Raises the library's errors."""
    try:
        info: dict[str, Any] = system.info(name)
    except FileNotFoundError as e:
        if _is_failure(e.__cause__):
            raise e.__cause__ from None
        return {}
    return info


def _is_failure(cause: BaseException | None) -> TypeGuard[Exception]:
    """Return whether a web server could not be reached or failed; fsspec reports that as a missing file."""
    if isinstance(status := getattr(cause, "status", None), int):
        return status >= 500
    of_network = isinstance(cause, OSError) or type(cause).__module__.startswith("aiohttp.")
    return of_network and not isinstance(cause, FileNotFoundError)


def _facts(url: str, info: dict[str, Any]) -> FileFacts:
    """Raise InputError if the storage does not say the size of a file."""
    if not isinstance(info.get("size"), int):
        raise InputError(f"{url}: its server does not report its size")
    etag = next((str(value).strip('"') for key, value in info.items() if key.lower() == "etag" and value), None)
    return FileFacts(info["size"], _seconds(next((info[t] for t in _TIMES if info.get(t)), 0)) * 10**9, etag)


def _seconds(time: object) -> int:
    """Convert a time in any form of a file system to seconds since 1970; 0 if unknown."""
    if isinstance(time, str):
        text = time
        with suppress(ValueError):
            time = email.utils.parsedate_to_datetime(text)
        with suppress(ValueError):
            time = datetime.datetime.fromisoformat(text)
    if isinstance(time, datetime.datetime):
        time = time.timestamp()
    return int(time) if isinstance(time, int | float) else 0
