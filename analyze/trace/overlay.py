"""The critical path as it is drawn into an exported trace: its pieces, a lane per place, and arrows between places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple


class Piece(NamedTuple):
    """A piece of the path: what it is, when, and where: on a thread, or on a stream of a device."""

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
        """What the piece is called."""
        return self.kind if self.name is None else f"{self.kind}: {self.name}"

    @property
    def place(self) -> str:
        """Where it happened, in words."""
        if self.device is not None:
            return f"rank {self.rank} GPU {self.device} stream {self.stream}"
        return f"rank {self.rank}" if self.tid is None else f"rank {self.rank} thread {self.tid}"


_SQL = """
WITH _path AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY rank, seq) AS piece, * FROM critical_path
    WHERE turn IS NULL AND {inside}
),
_threads AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY rank, tid)::INTEGER AS track, rank, tid
    FROM (SELECT DISTINCT rank, tid FROM _path WHERE kind = 'cpu')
),
_cpu AS (
    SELECT track, piece, start_ns, start_ns + dur_ns AS end_ns FROM _path JOIN _threads USING (rank, tid)
    WHERE kind = 'cpu'
),
_all_events AS (
    SELECT track, kind, name, start_ns, start_ns + dur_ns AS end_ns FROM cpu_events JOIN _threads USING (rank, tid)
    WHERE kind IN ('op', 'range', 'call')
    UNION ALL
    SELECT track, 'range', name, start_ns, start_ns + dur_ns FROM ranges JOIN _threads USING (rank, tid)
    WHERE origin = 'nvtx' AND style = 'PushPop'
),
_events AS (
    SELECT * FROM _all_events QUALIFY kind <> 'call' OR bool_and(kind = 'call') OVER (PARTITION BY track)
),
_busy AS MATERIALIZED (SELECT row_number() OVER () AS window_id, * FROM innermost('_events')),
_parts AS (
    SELECT c.piece, b.name, sum(c.end_ns - c.start_ns) AS part_ns
    FROM intervals_cut('_cpu', '_busy') c JOIN _busy b USING (window_id)
    GROUP BY c.piece, b.name
),
_mostly AS (SELECT piece, arg_max(name, (part_ns, name)) AS name FROM _parts GROUP BY piece)
SELECT p.rank, p.kind, coalesce(p.name, m.name), p.start_ns, p.dur_ns, p.tid, p.device, p.stream
FROM _path p LEFT JOIN _mostly m USING (piece)
ORDER BY piece
"""


USES = ("cpu_events", "innermost", "intervals")


def sql(inside: str) -> str:
    """SQL of the columns of `Piece`, in order of rank and time; `inside` is SQL of the events to draw.

    A piece on the CPU is named by the operator or range that was the thread's innermost most of the time (by CUDA calls
    on threads that have nothing else). It reads the blocks of USES.
    """
    return _SQL.format(inside=inside)


def pieces(rows: Iterable[tuple[Any, ...]]) -> list[Piece]:
    """The rows of `sql`."""
    return [Piece(*row) for row in rows]


def lanes(path: Iterable[Piece]) -> dict[str, int]:
    """The number, from 1, of the lane of each place: rank by rank, threads before streams."""
    found = {p.place: (p.rank, p.device is not None, p.device or 0, p.stream or p.tid or 0) for p in path}
    return {place: number for number, place in enumerate(sorted(found, key=found.__getitem__), 1)}


def arrows(path: Sequence[Piece]) -> Iterator[tuple[Piece, Piece]]:
    """The pieces before and after each change of place."""
    return ((a, b) for a, b in pairwise(path) if a.rank == b.rank and a.place != b.place)
