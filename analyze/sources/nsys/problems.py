"""What is missing from an Nsight Systems report, or was not read, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from analyze.sources.nsys.capture import parse_number
from analyze.sources.nsys.open_export import Tables, rows
from analyze.sources.nsys.rank_processes import RankProcesses, Work, pid_of
from analyze.sources.nsys.rows import EVENT_TABLES, Skipped
from analyze.sources.nsys.unread import unread_tables

_STALE_S = 60
"""Seconds by which an export may be older than its report: copying both sets their times in any order."""

_SHOWN = 8
"""Most processes named in a warning."""

_SCHEMA_MAJOR = 3
"""EXPORT_SCHEMA_VERSION_MAJOR of the exports from 2021 to 2026."""

_LOSS = re.compile(r"^Error when|^Not all .* collected|dropped|\blost\b|incomplete", re.IGNORECASE)
"""Texts of diagnostics that report lost events, although their severity is only a warning."""


def problems_of(tables: Tables, work: Work, processes: RankProcesses, skipped: Skipped) -> Iterator[str]:
    """Yield a phrase for each thing that is missing, guessed or unusual."""
    if stale := _stale(tables.path):
        yield stale
    version = _export_version(tables)
    if version and version > _SCHEMA_MAJOR:
        yield f"its export schema {version} is newer than what is known ({_SCHEMA_MAJOR}), read by the names of columns"
    if losses := list(_recorded_losses(tables)):
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        yield f"the report itself says: {losses[0]}{more}"
    yield from _missing_kernels(work, processes.ranks)
    if len(set(processes.ranks.values())) > 1:
        if not processes.mpi_ranks:
            pids = _listed([pid_of(p) for p in processes.ranks])
            yield f"which process has which rank is guessed from the order of the process ids ({pids})"
        elif processes.mpi_ranks != list(range(len(processes.mpi_ranks))):
            yield f"its processes are numbered in the order of their MPI ranks ({_listed(processes.mpi_ranks)})"
    for group in processes.shared:
        pids = _listed([pid_of(p) for p in group])
        yield f"{len(group)} processes ({pids}) share one GPU and are read as one rank"
    if graphs := sum(n for e, counts in work.items() if "GRAPH_TRACE" in e.source for n in counts.values()):
        yield f"{_count(graphs, 'CUDA graph')} traced as a whole, without kernels (--cuda-graph-trace=node traces them)"
    yield from skipped.sentences()
    if unread := unread_tables(tables):
        yield f"recorded and not read: {', '.join(unread)}"
    for (source, column), values in tables.unreadable.items():
        yield f"{_count(values, 'value')} of {source}.{column} not a whole number, read as NULL"
    for view in sorted({e.source for e in EVENT_TABLES} & tables.views):
        yield f"{view} is a view, not a table: not read"
    left: Counter[int] = Counter()
    for counts in work.values():
        left.update({p: n for p, n in counts.items() if p and p not in processes.ranks})
    if left:
        others = _count(len(left), "process", "es")
        yield f"{_count(left.total(), 'host event')} of {others} without GPU work left out"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")


def _stale(path: Path) -> str | None:
    """Return a phrase if the report next to an export is newer: it was recorded again."""
    for report in (path.with_suffix(".nsys-rep"), path.with_suffix(".qdrep")):
        try:
            if report != path and (seconds := report.stat().st_mtime - path.stat().st_mtime) > _STALE_S:
                return f"it is {_duration(seconds)} older than {report.name} next to it: export that report again"
        except OSError:
            continue
    return None


def _duration(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3600)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{seconds / 60:.0f} min"


def _count(n: int, noun: str, plural: str = "s") -> str:
    return f"{n} {noun}{plural if n != 1 else ''}"


def _export_version(tables: Tables) -> int | None:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for row in rows(tables, table, ["name", "value"]):
            if row["name"] == "EXPORT_SCHEMA_VERSION_MAJOR":
                return parse_number(row["value"] or "")
    return None


def _recorded_losses(tables: Tables) -> Iterator[str]:
    """Yield the first line of each diagnostic (exports since 2024) that reports missing events."""
    levels = {r["id"]: r["label"] for r in rows(tables, "ENUM_DIAGNOSTIC_SEVERITY_LEVEL", ["id", "label"])}
    for row in rows(tables, "DIAGNOSTIC_EVENT", ["severity", "text"]):
        text = (row["text"] or "").strip()
        level = levels.get(row["severity"], "")
        if level in ("Error", "Fatal") or (level != "Info" and _LOSS.search(text)):
            yield text.partition("\n")[0][:200]


def _missing_kernels(work: Work, ranks: dict[int, int | None]) -> Iterator[str]:
    """Yield a phrase if ranks used CUDA but have no kernels, as after a crash or a partial import."""
    with_kernels = {p for e, counts in work.items() if e.table == "kernels" for p in counts}
    used = {p for e, counts in work.items() if e.on_gpu or e.table == "cuda_calls" for p in counts}
    if not used:
        return
    lacking = [p for p in ranks if p and p not in with_kernels]
    if lacking:
        pids = ", ".join(str(pid_of(p)) for p in sorted(lacking))
        yield f"no kernel of {len(lacking)} of {len(ranks)} ranks is in it (process {pids}): the report is partial"
