"""Sums of the pieces into which `pieces` cut a rank, added up: the tables of a call tree's sums."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from analyze.query.computed.call_paths import number_paths
from analyze.query.computed.registered import registered

_OF_NAMES = """
SELECT
    run_id, rank, run_group, kind, name, folded, sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns,
    sum(self_ns)::BIGINT AS self_ns, sum(gpu_ns)::BIGINT AS gpu_ns, sum(total_gpu_ns)::BIGINT AS total_gpu_ns
FROM {table}
GROUP BY run_id, rank, run_group, kind, name, folded
"""
# A label has a number in the order of kinds and names, as `path_sums` numbers them.
_PATHS = """
SELECT
    dense_rank() OVER (ORDER BY first_path) AS owner, coalesce(parent, -1) AS parent, depth,
    dense_rank() OVER (ORDER BY kind, name NULLS FIRST) AS label
FROM (SELECT *, min(path) OVER (PARTITION BY run_id, rank) AS first_path FROM {table})
ORDER BY path
"""
_OF_PATHS = """
SELECT
    p.run_id, p.rank, p.run_group, p.kind, p.name, t.* EXCLUDE (before), sum(calls)::BIGINT AS calls,
    sum(total_ns)::BIGINT AS total_ns, sum(self_ns)::BIGINT AS self_ns, min(first_ns) AS first_ns
FROM {table} p JOIN paths_together t ON t.before = p.path
GROUP BY ALL
ORDER BY t.path
"""
_OF_WORK = """
SELECT
    w.run_id, w.rank, w.run_group, t.path, w.kind, w.name, sum(calls)::BIGINT AS calls,
    sum(total_ns)::BIGINT AS total_ns, min(first_ns) AS first_ns, max(last_ns) AS last_ns
FROM {table} w LEFT JOIN paths_together t ON t.before = w.path
GROUP BY ALL
"""


def names(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """A row for each name in place of one for each piece and name, in a table like those of torch_sums."""
    connection.execute(f"CREATE OR REPLACE TABLE {table} AS {_OF_NAMES.format(table=table)}")


def paths(connection: duckdb.DuckDBPyConnection, table: str, work: str) -> None:
    """The same for paths, which are numbered anew, in tables like those of call_paths and call_work."""
    found = connection.execute(_PATHS.format(table=table)).fetchnumpy()
    owner, parent, depth, label = (
        np.ma.getdata(found[c]).astype(np.int64) for c in ("owner", "parent", "depth", "label")
    )
    path, known = number_paths(owner, parent, depth, label)
    numbers = {"path": path, "parent": known.parent[path], "last_path": known.last[path]}
    rows = {"before": pa.array(np.arange(len(path)))} | {c: pa.array(v.astype(np.int32)) for c, v in numbers.items()}
    rows["parent"] = pa.array(numbers["parent"].astype(np.int32), mask=numbers["parent"] < 0)
    rows["depth"] = pa.array(known.depth[path].astype(np.int16))
    with registered(connection, paths_together=pa.table(rows)):
        for name, sql in ((table, _OF_PATHS), (work, _OF_WORK)):
            connection.execute(f"CREATE OR REPLACE TABLE {name} AS {sql.format(table=name)}")
