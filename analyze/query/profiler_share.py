"""Notes and cautions about the profiler's share of the time in an answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

Rows = Callable[[str, Sequence[str]], list[tuple[Any, ...]]]
"""Runs SQL that reads these modules: `Engine.rows`."""

_COSTS = """
SELECT count(*), count(*) FILTER (slowdown IS NULL), max(slowdown)
FROM (
    SELECT g.run_id, CASE WHEN count(c.slowdown) = count(*) THEN max(c.slowdown) END AS slowdown
    FROM run_groups g LEFT JOIN step_costs c USING (run_id, rank)
    WHERE g.profiler IN ('torch', 'nsys')
    GROUP BY g.run_id
)
"""
_HOST_BOUND = """
SELECT count(*)
FROM (SELECT run_id FROM empty_queue_launches GROUP BY run_id HAVING 2 * sum(empty) > sum(launched) AND count(*) > 1)
"""
"""Runs of several ranks."""

_SLOWEST = "slowest rank"


def full_block_note(left_out: Collection[str], full: str) -> str:
    """Return a sentence if the times of an answer are those of the full block, next to a GPU-only one; else empty.

    `left_out`: profilers of passes that do not answer. `full`: what a GPU-only block lacks, as `@full` has it.
    """
    return f"times are those of the full block: a GPU-only block has no {full}" if full and "gpu" in left_out else ""


def profiler_note(rows: Rows, tables: Collection[str], disturbed: str) -> str:
    """Return a sentence about the profiler's share in an answer; empty if it is known.

    `disturbed`: what it makes longer, as `@disturbed` has it. If that includes the slowest rank, the sentence says when
    it may be another one: if the host is the limit, and the profiler's share is large or not known.
    """
    if not disturbed or "kernels" not in tables:
        return ""
    [(runs, unknown, slowdown)] = rows(_COSTS, ["profiler_cost"])
    said = []
    if unknown:
        where = f" in {unknown} of {runs} runs" if unknown < runs else ""
        said.append(
            f"the profiler's share of {disturbed} is not known{where}: no undisturbed steps were timed"
            " (`health` estimates whether it is large)"
        )
    if _SLOWEST in disturbed and (unknown or (slowdown or 0) > 1.1) and rows(_HOST_BOUND, ["profiler_cost"])[0][0]:
        said.append(
            "most launches find an empty queue, so the CPU is the limit and the profiler slows it down:"
            " without it, another rank may be the slowest"
        )
    return "; ".join(said)
