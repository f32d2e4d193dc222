"""The critical path as it is drawn into an exported trace: a track of its pieces, and arrows from place to place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analyze.engine import Engine

TRACK = 8_000_000
"""Number of the process that holds the track, one thread for each rank; no process or GPU of a trace has it."""


class Piece(NamedTuple):
    """A piece of the path: what it is, when, and the process and thread of the trace in which it happens."""

    rank: int
    name: str
    start_ns: int
    dur_ns: int
    pid: int
    tid: int


class Arrow(NamedTuple):
    """From the end of a piece to the start of the next one, which happens somewhere else."""

    number: int
    before: Piece
    after: Piece


def make(engine: Engine) -> None:
    """Compute the path of the engine's runs; `sql` reads it."""
    from analyze import critical_path

    critical_path.table(engine)


def sql(gpu: str, stride: int, inside: str) -> str:
    """SQL of the columns of `Piece`, in order of rank and time.

    `gpu`: SQL of the process number of a device; `stride`: what a rank adds to that of a CPU process, 0 for one rank;
    `inside`: SQL of the events to draw.
    """
    # The path names the thread of a piece on the CPU, and a rank has one process.
    return (
        "WITH processes AS (SELECT rank, min(pid) AS pid FROM"
        " (SELECT rank, pid FROM cpu_ops UNION SELECT rank, pid FROM cuda_calls) GROUP BY rank)"
        " SELECT rank, kind || CASE WHEN name IS NULL THEN '' ELSE ': ' || name END, start_ns, dur_ns,"
        f" CASE WHEN device IS NULL THEN rank * {stride} + coalesce(pid, 0) ELSE {gpu} END,"
        " CASE WHEN device IS NULL THEN coalesce(tid, 0) ELSE coalesce(stream, 0) END"
        f" FROM critical_path_span LEFT JOIN processes USING (rank) WHERE {inside} ORDER BY rank, seq"
    )


def arrows(pieces: Iterable[Piece]) -> Iterator[Arrow]:
    """An arrow wherever the path goes on in another thread or on another stream."""
    before: Piece | None = None
    for number, piece in enumerate(pieces):
        if before and before.rank == piece.rank and (before.pid, before.tid) != (piece.pid, piece.tid):
            yield Arrow(number, before, piece)
        before = piece


def pieces(rows: Iterable[tuple[Any, ...]]) -> list[Piece]:
    """The rows of `sql`."""
    return [Piece(*row) for row in rows]
