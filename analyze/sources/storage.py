"""Storage behind URLs: s3://, gs://, az:// and whatever else fsspec knows. What lies there, and what it refuses."""

from __future__ import annotations

import datetime
import email.utils
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

from analyze.errors import InputError, StorageError

_TIMES = ("LastModified", "mtime", "last_modified", "Last-Modified", "modified", "updated", "created")
"""What the file systems of fsspec call the time of the last change."""


class FileFacts(NamedTuple):
    """A file as its storage describes it; other contents have other facts."""

    bytes: int
    mtime_ns: int
    """In whole seconds; 0 where the storage does not say."""
    etag: str | None
    """Its entity tag, where the storage has such a thing."""


class Tree:
    """What lies at a URL, below it and beside it. Nothing is asked before it is needed, and nothing twice."""

    def __init__(self, url: str, files: dict[str, FileFacts | None] | None = None):
        self._url = url
        self._files = files or {}
        """By URL; None for what is no file."""
        self._folders: dict[str, dict[str, None]] = {}
        """The names in each folder that has files."""
        self._listed: list[str] = []
        """Folders of which all is known."""

    @cached_property
    def system(self) -> Any:
        """The fsspec file system."""
        system, _ = file_system(self._url)
        with storage_errors(self._url):
            system.invalidate_cache()
        return system

    def name(self, url: str) -> str:
        """What the file system calls a file or folder."""
        name: str = self.system._strip_protocol(url)
        return name

    def known(self, url: str) -> FileFacts | None:
        """What is known of a file by now."""
        return self._files.get(url)

    def file(self, url: str) -> FileFacts | None:
        """What there is to know of a file; None if there is none. Raises StorageError."""
        if url not in self._files and not self._is_listed(url):
            with storage_errors(url):
                info = described(self.system, self.name(url))
            self._files[url] = _facts(url, info) if info.get("type") == "file" else None
        return self._files.get(url)

    def folder(self, url: str) -> Iterable[str]:
        """The names in a folder; none if there is nothing. Raises StorageError."""
        if not self._is_listed(url):
            self._list(url)
        return self._folders.get(url, ())

    def below(self, url: str) -> list[str]:
        """The URLs of all files below a folder, sorted."""
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
                continue  # where keys are any text, some are no paths
            self._files[f"{url}/{name[start:]}"] = _facts(f"{url}/{name[start:]}", info)
            folder = url
            for part in parts:
                self._folders.setdefault(folder, {})[part] = None
                folder = f"{folder}/{part}"


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and what it calls the URL. Raises InputError."""
    with storage_errors(url):
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(url)
        return found


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Errors of a storage, whatever its library raises, as StorageError; but not that a file is there or not."""
    try:
        yield
    except (InputError, FileExistsError, FileNotFoundError, MemoryError):
        raise
    except ImportError as e:
        raise InputError(f"{url}: needs `pip install 'tracequarry[cloud]'` ({e})") from e
    except Exception as e:
        raise StorageError(f"{url}: {type(e).__name__}: {str(e).partition(chr(10))[0]}") from e


def described(system: Any, name: str) -> dict[str, Any]:
    """What a file system says of a file or folder; nothing where there is none. Raises what it fails with."""
    try:
        info: dict[str, Any] = system.info(name)
    except FileNotFoundError as e:
        if _is_failure(e.__cause__):
            raise e.__cause__ from None
        return {}
    return info


def _is_failure(cause: BaseException | None) -> TypeGuard[Exception]:
    """Whether a web server was not reached, or failed: to fsspec, too, its file is then not there."""
    if isinstance(status := getattr(cause, "status", None), int):
        return status >= 500
    of_network = isinstance(cause, OSError) or type(cause).__module__.startswith("aiohttp.")
    return of_network and not isinstance(cause, FileNotFoundError)


def _facts(url: str, info: dict[str, Any]) -> FileFacts:
    """Raises InputError where the storage does not say how large a file is."""
    if not isinstance(info.get("size"), int):
        raise InputError(f"{url}: its server does not say how large it is")
    etag = next((str(value).strip('"') for key, value in info.items() if key.lower() == "etag" and value), None)
    return FileFacts(info["size"], _seconds(next((info[t] for t in _TIMES if info.get(t)), 0)) * 10**9, etag)


def _seconds(time: object) -> int:
    """A time in any of the forms that file systems give it, in seconds since 1970; 0 if it is in none."""
    if isinstance(time, str):
        text = time
        with suppress(ValueError):
            time = email.utils.parsedate_to_datetime(text)
        with suppress(ValueError):
            time = datetime.datetime.fromisoformat(text)
    if isinstance(time, datetime.datetime):
        time = time.timestamp()
    return int(time) if isinstance(time, int | float) else 0
