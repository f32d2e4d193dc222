"""Drop files that have a rank which another file of the same run has, too."""

from __future__ import annotations

from analyze.errors import InputError
from analyze.ingestion.run_folders import RunInput
from analyze.ingestion.staging import FileResult
from analyze.sources.interface import SourceFile


def drop_duplicate_ranks(run: RunInput, done: list[FileResult]) -> None:
    """Remove from `done`, with a warning, each file that has rows of a table and rank that an earlier file has.

    Raises InputError if the user named it.
    """
    owners: dict[tuple[str, int], SourceFile] = {}
    for result in list(done):
        if twice := next((key for key in result.written if key in owners), None):
            table, rank = twice
            other = owners[twice].path
            problem = f"{result.file.path}: has {table} of rank {rank}, and so has {other}, of the same run"
            if result.file.path in run.named:
                raise InputError(problem)
            run.warnings.append(f"{run.shown(problem)}; left out")
            done.remove(result)
            continue
        owners |= dict.fromkeys(result.written, result.file)
