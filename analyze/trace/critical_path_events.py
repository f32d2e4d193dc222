"""The critical path in an exported trace: its pieces, a track for each thread and stream, and arrows between tracks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

SQL = """
WITH cpu_names AS (
    SELECT run_id, rank, seq, arg_max(name, (dur_ns, name)) AS cpu_name
    FROM critical_path_cpu
    WHERE turn IS NULL AND name IS NOT NULL
    GROUP BY run_id, rank, seq
)
SELECT rank, kind, coalesce(name, cpu_name), start_ns, dur_ns, tid, device, stream
FROM critical_path LEFT JOIN cpu_names USING (run_id, rank, seq)
WHERE turn IS NULL AND {condition}
ORDER BY rank, seq
"""
"""Select the columns of `Piece`. A piece on the CPU has the name of what was innermost on its thread for longest."""


class Piece(NamedTuple):
    """A piece of the critical path, on a thread or on a stream of a device."""

    rank: int
    kind: str
    name: str | None
    start_ns: int
    dur_ns: int
    tid: int | None
    device: int | None
    stream: int | None

    @property
    def title(self) -> str:
        """Name of its slice."""
        return self.kind if self.name is None else f"{self.kind}: {self.name}"

    @property
    def track(self) -> str:
        """Name of its track."""
        if self.device is not None:
            return f"rank {self.rank} GPU {self.device} stream {self.stream}"
        return f"rank {self.rank}" if self.tid is None else f"rank {self.rank} thread {self.tid}"


def number_tracks(path: Iterable[Piece]) -> dict[str, int]:
    """Return the number, from 1, of each track: by rank, threads before streams."""
    found = {p.track: (p.rank, p.device is not None, p.device or 0, p.stream or p.tid or 0) for p in path}
    return {track: number for number, track in enumerate(sorted(found, key=found.__getitem__), 1)}


def arrows(path: Sequence[Piece]) -> Iterator[tuple[Piece, Piece]]:
    """Yield the pieces before and after each change of track."""
    return ((a, b) for a, b in pairwise(path) if a.rank == b.rank and a.track != b.track)
