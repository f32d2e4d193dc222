"""Which runs and ranks a query reads: `--where`, `--profiler`, `--block` and `--by` in one value.

`analyze.query.selected_runs` applies it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from analyze.errors import InputError
from analyze.stored_tables import TABLES

TIMING = ("torch", "nsys", "rocprof", "nvprof", "gpu")
"""Profilers that time GPU work, the best first: passes of one workload under them show the same work again. `gpu` is
the GPU-only block: it has the true times, and what launched the work only from the full block (docs/blocks.md)."""

PROFILERS = (*TIMING, "ncu", "none")
"""Values of `--profiler`."""

BLOCKS = ("gpu", "full", "both")
"""Values of `--block`."""

RANK_COLUMNS = {"rank": ("index", "process rank"), "node": ("text", "host that the rank ran on")}
"""Columns of ranks for `--where` and `--by`: unit and meaning."""

GPU_COLUMNS = {"device": ("index", "GPU as the process numbered it"), "stream": ("id", "CUDA stream")}
"""Columns of GPU work for `--where` and `--by` of queries that declare them (`@by`): unit and meaning."""

RUN_COLUMNS = {c.name: c for c in TABLES["runs"].columns} | dict.fromkeys(RANK_COLUMNS)
"""All columns for `--where` and `--by`; None for columns of ranks."""


@dataclass(frozen=True)
class Selection:
    """The runs and ranks that a query reads, and the groups of its answer. By default, all in one group.

    Of a workload that was recorded under several profilers, one timing pass is read: see `analyze.query.selected_runs`.
    """

    where: tuple[str, ...] = ()
    """SQL expressions over the columns of `runs`, `rank`, `node`, `device` and `stream`. All must hold."""
    profiler: str | None = None
    """Read only runs that were recorded under it; "all" for all."""
    by: tuple[str, ...] = ()
    """Columns of `runs`, or `rank`, `node`, `device`, `stream`, whose values become groups."""
    prefer: str | None = None
    """The pass that a query prefers; "all" for one that reads all passes."""
    block: str | None = None
    """Read only the GPU-only block ("gpu"), no GPU-only block ("full"), or "both". By default, as the query prefers."""

    def narrowed(self, where: str | None = None, profiler: str | None = None, block: str | None = None) -> Selection:
        """Return the part for which `where` holds, too; `profiler` and `block`, if given, replace the present ones."""
        return replace(
            self,
            where=(*self.where, where) if where else self.where,
            profiler=profiler or self.profiler,
            block=block or self.block,
        )

    def grouped(self, by: Iterable[str]) -> Selection:
        """Return the same in groups. Both blocks of a workload are never one group."""
        by = tuple(by)
        if self.block == "both" and not {"run_id", "profiler"} & set(by):
            by = (*by, "profiler")
        return replace(self, by=by)

    @property
    def condition(self) -> str | None:
        """All of `where` as one SQL expression, for `--where`; None if there is none."""
        if len(self.where) < 2:
            return next(iter(self.where), None)
        return " AND ".join(f"({where})" for where in self.where)


def check_by(names: Iterable[str]) -> None:
    """Raise InputError for a name that is not a column of runs, ranks or GPU work."""
    for name in names:
        if name not in RUN_COLUMNS and name not in GPU_COLUMNS:
            raise InputError(f"--by {name}: runs has no such column; it has {', '.join(sorted(RUN_COLUMNS))}")


DEFAULT = Selection()
"""All runs, of each workload one timing pass, in one group."""
