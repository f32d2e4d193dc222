"""Ranks with too many events to be worked on at once, cut in time where nothing is open on any thread.

What begins behind such a moment lies in nothing that began before it, and CUDA calls are numbered as they are made: so
each piece is worked on as if it was a rank of its own, and the memory that a rank takes does not grow with it. A
training is idle like that between two steps, say. Where a recording never is (in a range around all of it, or with
Python stacks), a rank stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.query.computed.nesting import UNKNOWN
from analyze.query.computed.registered import registered
from analyze.query.literals import of_ranks

if TYPE_CHECKING:
    import duckdb

Ints = npt.NDArray[np.int64]

LARGE = 4
"""Batches that a rank may be as large as without being cut."""

OF_TIME = "true /* of this time */"
"""Stands in SQL of events on the CPU for a condition on start_ns."""
OF_WORK = "true /* of this work */"
"""Stands in SQL of GPU work for a condition on correlation_id: work is where its launch call is."""

_STRETCH_BITS = 19
"""Of the number of stretches into which a rank is divided: it is cut where one of them begins."""
_MOST_EMPTY = 32
"""External ids for each event, at most."""

_LARGE = "SELECT run_id::VARCHAR, rank FROM {table} WHERE events > $1 ORDER BY run_id, rank"
_EVENTS = "FROM cpu_events WHERE dur_ns IS NOT NULL AND ({among} OR kind = 'call') AND {only}"
_SPAN = "SELECT min(start_ns), max(start_ns) " + _EVENTS
# (A shift, for a division takes longer.) Nothing lies in the range of a collective.
_STRETCHES = f"""
SELECT
    (start_ns - {{low}}) >> {{shift}} AS stretch, count(*) FILTER ({{among}}) AS events,
    max(start_ns + dur_ns) FILTER ({{among}} AND kind <> 'async') AS reached,
    min(correlation_id) FILTER (correlation_id > 0) AS first_call, max(correlation_id) AS last_call
{_EVENTS}
GROUP BY stretch
ORDER BY stretch
"""
_IN_PIECES = """
CREATE OR REPLACE TEMP TABLE {table} AS
SELECT
    t.* REPLACE (
        coalesce(p.events, t.events) AS events, (row_number() OVER in_order)::INTEGER AS process,
        dense_rank() OVER (ORDER BY t.batch, coalesce(p.piece, -1)) - 1 AS batch
    ),
    p.piece
FROM {table} t LEFT JOIN cut_pieces p ON p.run_id = t.run_id::VARCHAR AND p.rank = t.rank
WINDOW in_order AS (ORDER BY t.run_id, t.rank, p.piece)
"""
# (Of -2^63, SQL makes a number of 128 bits.)
_FIRST, _LAST = -UNKNOWN, UNKNOWN
_NONE, _NO_OWNERS = np.empty(0, np.int64), np.zeros(0, np.uint16)


class NotApart(Exception):
    """An operator of one piece is that of work or of calls in another: the ranks must be worked on whole."""


class Piece(NamedTuple):
    """Of a rank, what began in a time, and the work of the CUDA calls with these correlation ids."""

    run_id: str
    rank: int
    from_ns: int
    to_ns: int
    from_call: int
    to_call: int
    events: int

    @property
    def of(self) -> tuple[str, int]:
        """Run and rank."""
        return self.run_id, self.rank

    def conditions(self) -> dict[str, str]:
        """By what they replace in SQL."""
        work = f"correlation_id >= {self.from_call} AND correlation_id < {self.to_call}"
        if self.from_call == _FIRST:
            work = f"(correlation_id < {self.to_call} OR correlation_id IS NULL)"
        elif self.to_call == _LAST:
            work = f"correlation_id >= {self.from_call}"
        return {OF_TIME: f"start_ns >= {self.from_ns} AND start_ns < {self.to_ns}", OF_WORK: work}


def unless_not_apart(make: Callable[[bool], None]) -> None:
    """Make something of ranks of which large ones are cut; whole, begun anew, where that raises NotApart.

    `make` is told whether to cut.
    """
    try:
        make(True)
    except NotApart:
        make(False)


def cut(connection: duckdb.DuckDBPyConnection, table: str, among: str, batch: int) -> dict[int, Piece]:
    """Cut the large ranks of a table like one of `rank_batches.create`: each piece has a row, a process and a batch.

    Gives the piece of each batch that is one. `among` says which of cpu_events are worked on; those of a piece are some
    `batch`.
    """
    pieces: list[Piece] = []
    for run_id, rank in connection.execute(_LARGE.format(table=table), [LARGE * batch]).fetchall():
        pieces += _pieces(connection, among, run_id, rank, batch)
    if not pieces:
        return {}
    columns: dict[str, Any] = {c: [getattr(p, c) for p in pieces] for c in ("run_id", "rank", "events")}
    with registered(connection, cut_pieces=pa.table(columns | {"piece": list(range(len(pieces)))})):
        connection.execute(_IN_PIECES.format(table=table))
    batches = connection.execute(f"SELECT batch, piece FROM {table} WHERE piece IS NOT NULL").fetchall()
    return {number: pieces[piece] for number, piece in batches}


def _pieces(connection: duckdb.DuckDBPyConnection, among: str, run_id: str, rank: int, batch: int) -> list[Piece]:
    """The pieces of a rank; none, if it cannot be cut."""
    told = {"among": among, "only": of_ranks([run_id], [rank])}
    [(low, high)] = connection.execute(_SPAN.format(**told)).fetchall()
    if low is None:
        return []
    shift = max((high - low).bit_length() - _STRETCH_BITS, 0)
    found = connection.execute(_STRETCHES.format(low=low, shift=shift, **told)).fetchnumpy()
    stretch, events = (np.ma.getdata(found[c]).astype(np.int64) for c in ("stretch", "events"))
    reached, first, last = (
        np.ma.filled(found[c], nothing)
        for c, nothing in (("reached", _FIRST), ("first_call", _LAST), ("last_call", _FIRST))
    )
    at = low + (stretch << shift)
    reached, last = np.maximum.accumulate(reached), np.maximum.accumulate(last)
    first = np.minimum.accumulate(first[::-1])[::-1]
    free = np.flatnonzero((reached[:-1] <= at[1:]) & (last[:-1] < first[1:])) + 1
    before = np.cumsum(events) - events
    begins: list[int] = []
    place = np.searchsorted(before[free], batch)
    while place < len(free):
        begins.append(int(free[place]))
        place = np.searchsorted(before[free], before[begins[-1]] + batch)
    if not begins:
        return []
    times = [_FIRST, *at[begins].tolist(), _LAST]
    calls = [_FIRST, *first[begins].tolist(), _LAST]
    so_far = [0, *before[begins].tolist(), int(events.sum())]
    bounds = zip(pairwise(times), pairwise(calls), pairwise(so_far), strict=True)
    return [Piece(run_id, rank, *ns, *ids, to - since) for ns, ids, (since, to) in bounds]


class Apart:
    """Sees to it that each External id of a rank is of one piece: work has that of the operator open at its launch."""

    def __init__(self, pieces: Iterable[Piece | None]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(pieces, 1) if piece is not None}
        # Of a rank: its first id, and by id the piece with operators of that id, numbered from 1 on.
        self._owners: dict[tuple[str, int], tuple[int, npt.NDArray[np.uint16]]] = {}
        self._without: list[tuple[Piece, Ints]] = []

    def add(self, piece: Piece | None, of_ops: Sequence[Ints], others: Ints) -> None:
        """The External ids of the operators and ranges of a piece, and of its work and calls; nothing of what is none.

        Raises NotApart.
        """
        if piece is None:
            return
        ops = _known(np.concatenate([_NONE, *of_ops]))
        if len(ops):
            low, owners = self._owners.get(piece.of) or (max(int(ops.min()) - piece.events, 0), _NO_OWNERS)
            place = ops - low
            more = int(place.max()) + 1 - len(owners)
            if place.min() < 0 or more > _MOST_EMPTY * piece.events:
                raise NotApart
            if more > 0:
                owners = np.concatenate([owners, np.zeros(max(more, len(owners)), np.uint16)])
            if owners[place].any():
                raise NotApart
            owners[place] = self._numbers[piece]
            self._owners[piece.of] = low, owners
        self._without.append((piece, self._left(piece, _known(others))))

    def _left(self, piece: Piece, ids: Ints) -> Ints:
        """Those of the ids that no operator has so far. Raises NotApart if one of another piece has."""
        low, owners = self._owners.get(piece.of, (0, np.zeros(1, np.uint16)))
        place = ids - low
        outside = (place < 0) | (place >= len(owners))
        owner = owners[np.where(outside, 0, place)] if outside.any() else owners[place]
        foreign = np.flatnonzero((owner != self._numbers[piece]) | outside)
        if (owner[foreign] != 0)[~outside[foreign]].any():
            raise NotApart
        return np.unique(ids[foreign])

    def finish(self) -> None:
        """All pieces have been added: what had no operator has none in a later one. Raises NotApart."""
        for piece, ids in self._without:
            self._left(piece, ids)


def _known(ids: Ints) -> Ints:
    some = (ids > 0) & (ids != UNKNOWN)
    return ids if some.all() else ids[some]
