"""Critical paths as tables. There may be millions of pieces and few texts, so texts are told by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analyze.query.computed.path_chains import ITSELF, Chain
from analyze.query.computed.path_walk import Rank, Segment
from analyze.query.computed.places import UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

_OF = {"run_id": "string", "rank": "int32", "run_group": "int32", "step": "int32", "seq": "int64"}
_PIECES = {
    "kind": "string", "name": "string", "tid": "int64", "device": "int32", "stream": "int64", "correlation_id": "int64",
    "op_id": "int64", "start_ns": "int64",
}  # fmt: skip


def none() -> pa.Table:
    """No rows, in the columns of a path."""
    return _schema({**_OF, **_PIECES, "dur_ns": "int64"}).empty_table()


def rows(of: tuple[Any, ...], rank: Rank, path: Sequence[Segment | Chain]) -> pa.Table:
    """A path as a table: what it is of, then the number of each piece and the piece."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pieces = _of_segments([piece for piece in path if isinstance(piece, Segment)])
    if chains := [piece for piece in path if isinstance(piece, Chain)]:
        is_chain = [isinstance(piece, Chain) for piece in path]
        chained = np.repeat(is_chain, [len(p.start) if isinstance(p, Chain) else 1 for p in path])
        places = np.where(chained, pieces.num_rows + np.cumsum(chained), np.cumsum(~chained)) - 1
        pieces = pa.concat_tables([pieces, _of_chains(rank, chains)]).unify_dictionaries().take(places)
    n = pieces.num_rows
    run_id, *numbers = of
    of_all = [_told(np.zeros(n, np.int32), [run_id]), *(pa.repeat(pa.scalar(x, pa.int32()), n) for x in numbers)]
    *columns, start, end = pieces.columns
    columns = [*of_all, pa.array(np.arange(n)), *columns, start, pc.subtract(end, start)]
    return pa.table(columns, schema=none().schema)


def _schema(columns: dict[str, str]) -> pa.Schema:
    import pyarrow as pa

    types = {"string": pa.dictionary(pa.int32(), pa.string()), "int32": pa.int32(), "int64": pa.int64()}
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])


def _told(numbers: Any, texts: Any) -> pa.DictionaryArray:
    """Texts by their numbers."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(texts, pa.string()))


def _of_segments(path: Sequence[Segment]) -> pa.Table:
    """Pieces as a table of their fields."""
    import pyarrow as pa

    schema = _schema({**_PIECES, "end_ns": "int64"})
    columns = zip(*path, strict=True) if path else [()] * len(schema)
    return pa.table([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)


def _of_chains(rank: Rank, chains: Sequence[Chain]) -> pa.Table:
    """The same of pieces in arrays."""
    import pyarrow as pa

    work, what, start, end = map(np.concatenate, zip(*chains, strict=True))
    kinds, names = (rank.texts[c].take(pa.array(work)) for c in ("class", "name"))
    kinds, names = (c if pa.types.is_dictionary(c.type) else c.dictionary_encode() for c in (kinds, names))
    kind = np.where(what == ITSELF, kinds.indices.to_numpy(zero_copy_only=False), len(kinds.dictionary) + what)
    place = [np.asarray(c)[work] for c in rank.place]
    schema = _schema({**_PIECES, "end_ns": "int64"})
    columns = [
        _told(kind, [*kinds.dictionary.to_pylist(), "gap", "stream_wait"]),
        _told(names.indices, names.dictionary),
        pa.nulls(len(work), pa.int64()),
        *(pa.array(c, mask=c == UNKNOWN).cast(t) for c, t in zip(place, schema.types[3:7], strict=True)),
        pa.array(start),
        pa.array(end),
    ]
    return pa.table(columns, schema=schema)
