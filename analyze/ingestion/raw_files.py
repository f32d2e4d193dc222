"""The raw files that a user names, and exports next to reports."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from analyze.atomic_output import protect
from analyze.errors import unreadable
from analyze.sources import Source, detect
from analyze.sources.compressed import plain_name
from analyze.sources.interface import SourceFile
from analyze.sources.remote import RawPath, RemotePath, raw_paths
from analyze.store.file_digest import printable
from schemas.files import is_file
from schemas.manifest import MANIFEST_NAME


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
