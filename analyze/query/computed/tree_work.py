"""The GPU work that the paths of a call tree launched, in sums."""

from __future__ import annotations

import duckdb

from analyze.query.computed import rank_batches
from analyze.query.computed.registered import registered
from analyze.query.computed.tree_batch import Batch, ops_of, rows_of

_SUMS = """
SELECT
    {also} run_id, rank, run_group, path, kind, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns,
    min(start_ns) AS first_ns, max(start_ns) AS last_ns
FROM ({work})
GROUP BY {also} run_id, rank, run_group, path, kind, name
"""
_WORK = "SELECT w.*, n.path FROM work_nodes('{work}', '{tree}') w LEFT JOIN {tree} n USING (node)"
# What an External id links to an operator, as `work_nodes` has it, without a look at each node; and whether it does.
_OF_BATCH = """
SELECT w.*, o.path, coalesce(o.several, coalesce(w.op_id, 0) = 0) AS unlinked
FROM (SELECT * FROM gpu_named_work WHERE true /* of these ranks */ AND true /* of this work */) w
JOIN (SELECT * FROM call_processes WHERE batch = {batch}) p USING (run_id, rank)
LEFT JOIN batch_ops o ON o.process = p.process AND o.op_id = w.op_id
"""
_LEFT = """
CREATE OR REPLACE TEMP TABLE call_batch_unlinked AS SELECT * EXCLUDE (path, unlinked) FROM ({work}) WHERE unlinked
"""
_LINKED = "SELECT * EXCLUDE (unlinked) FROM call_batch_sums WHERE NOT unlinked"
_TOGETHER = """
SELECT
    run_id, rank, run_group, path, kind, name, sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns,
    min(first_ns) AS first_ns, max(last_ns) AS last_ns
FROM ({linked} UNION ALL BY NAME {unlinked})
GROUP BY run_id, rank, run_group, path, kind, name
"""


def sums_in(work: str, tree: str) -> str:
    """SQL of the sums of a table like gpu_named_work by the paths of a tree with rows."""
    return _SUMS.format(also="", work=_WORK.format(work=work, tree=tree))


def sums(connection: duckdb.DuckDBPyConnection, batch: Batch, of: rank_batches.Batch, named: str) -> str:
    """SQL of the sums of a batch's work, of which tables are made; `drop` removes them.

    `of`: which ranks the batch is of; `named`: call_tree's SQL of rows with their texts.
    """
    work = of.filled(_OF_BATCH.format(batch=batch.number))
    with registered(connection, batch_ops=ops_of(batch)):
        # There are millions of rows and few sums.
        both = _SUMS.format(also="unlinked,", work=work)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE call_batch_sums AS {both}")
        if not connection.execute("SELECT 1 FROM call_batch_sums WHERE unlinked LIMIT 1").fetchall():
            return _LINKED
        connection.execute(_LEFT.format(work=work))
    with registered(connection, call_rows=rows_of(batch)):
        rows = named.format(rows="call_rows", text="")
        connection.execute(f"CREATE OR REPLACE TEMP TABLE call_batch_tree AS {rows}")
    return _TOGETHER.format(linked=_LINKED, unlinked=sums_in("call_batch_unlinked", "call_batch_tree"))


def drop(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove what `sums` made."""
    for name in ("call_batch_sums", "call_batch_unlinked", "call_batch_tree"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
