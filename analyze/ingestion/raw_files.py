"""The raw files that a user names, and exports next to reports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from analyze.atomic_output import protect
from analyze.errors import unreadable
from analyze.ingestion.progress import Progress
from analyze.sources import Source, detect
from analyze.sources.compressed import plain_name
from analyze.sources.interface import SourceFile
from analyze.sources.remote import RawPath, RemotePath, raw_paths
from analyze.store.file_digest import file_state, printable
from schemas.files import is_file
from schemas.manifest import MANIFEST_NAME

_MANY_FILES = 10_000
"""From this number of files on, the progress names the folder that is searched."""


def given_paths(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[RawPath]:
    """Return the paths that the user named. Raises InputError for a path that cannot be accessed."""
    found = raw_paths(paths)
    for path in found:
        try:
            if isinstance(path, Path):
                is_file(path / MANIFEST_NAME)  # fails if the path cannot be accessed
                if is_file(path):
                    protect(path)
        except (OSError, ValueError) as e:
            raise unreadable(printable(path), e) from e
    return found


def export_of(source: Source, path: RawPath, rank: int = 0) -> SourceFile | None:
    """Return the export next to a report, which is read instead; None if there is none."""
    report = path.with_name(plain_name(path))
    for suffix in source.exported:
        for export in (report.with_suffix(suffix), report.with_suffix(f"{suffix}.gz")):
            if export.is_file() and not export.is_symlink() and (found := detect(export)):
                return SourceFile(export, found.kind, rank)
    return None


def files_state(paths: Iterable[RawPath], progress: Progress) -> str:
    """Return what changes when a file at or below the paths changes: names, sizes and times."""
    states: list[str] = []
    for path in paths:
        if isinstance(path, RemotePath):
            states += map(repr, map(file_state, path.files()))
            continue
        path = path.resolve()
        for number, file in enumerate((path,) if path.is_file() else _files(path)):
            if number == _MANY_FILES:
                progress.search(str(path))
            try:
                stat = file.stat(follow_symlinks=file == path)
                states.append(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}")
            except OSError as e:
                states.append(f"{file}\0{e.errno}")
    return "\0".join(states)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(files):
            yield Path(parent, name)
