"""Flame graphs: call trees with the CPU or GPU time of each stack, for speedscope and for Brendan Gregg's scripts.

A stack is the names from the root of a thread down; its weight is self time in ns, so weights add up to the time of the
whole, as in the queries `op-tree` and `module-tree`. On the GPU, the last name is that of the kernel (the short one),
memcpy or memset.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from analyze.errors import InputError
from analyze.query.plain_sql import sentence
from analyze.whole_file import ending_of, whole_file

if TYPE_CHECKING:
    from analyze.query.engine import Engine

TREES = {"op": "no", "module": "module", "python": "stack"}
"""What a stack is of, and the end of the name of the table that holds the tree (`call_tree_...`)."""

TIMES = ("gpu", "cpu")

_FOLDED = (".folded", ".txt")

Stack = tuple[str, ...]

_WALK = """
WITH RECURSIVE nodes AS (
    SELECT run_id, rank, node, parent, self_ns, coalesce(replace(name, 'nn.Module: ', ''), '(no name)') AS name
    FROM call_tree_{tree}
    WHERE kind <> 'async'
),
-- A path is known by the first node on it.
walk AS (
    SELECT node, NULL::INTEGER AS parent_path, min(node) OVER (PARTITION BY run_id, rank, name) AS path
    FROM nodes
    WHERE parent IS NULL
    UNION ALL
    SELECT n.node, w.path, min(n.node) OVER (PARTITION BY w.path, n.name)
    FROM walk w JOIN nodes n ON n.parent = w.node
)
"""
_PATHS = """
SELECT
    run_id::VARCHAR, rank, path, any_value(parent_path) AS parent_path, any_value(name) AS name,
    sum(self_ns)::BIGINT AS self_ns
FROM nodes JOIN walk USING (node)
GROUP BY run_id, rank, path
ORDER BY path
"""
_WORK = """
SELECT w.run_id::VARCHAR, w.rank, path, w.name, sum(w.dur_ns)::BIGINT AS gpu_ns
FROM work_nodes('gpu_named_work', 'call_tree_{tree}') w LEFT JOIN walk USING (node)
GROUP BY w.run_id, w.rank, path, w.name
ORDER BY min(w.start_ns), w.name
"""

NO_OPERATOR = "(no operator)"
"""The root of GPU work that the recording links to no operator."""


class Profile(NamedTuple):
    """The stacks of one rank, in the order of the calls, each with its self time in ns."""

    run_id: str
    rank: int
    stacks: list[tuple[Stack, int]]


class Drawn(NamedTuple):
    """What was written: profiles (one per rank), their time in ns, and what is left out, in a sentence or empty."""

    profiles: int
    total_ns: int
    note: str


def profiles(engine: Engine, tree: str = "op", time: str = "gpu") -> list[Profile]:
    """The stacks of every rank that the engine selects, by run and rank. Raises InputError."""
    if tree not in TREES:
        raise InputError(f"--tree {tree}: must be one of {', '.join(TREES)}")
    if time not in TIMES:
        raise InputError(f"--time {time}: must be one of {', '.join(TIMES)}")
    walk = _WALK.format(tree=TREES[tree])
    try:
        uses = [f"call_tree_{TREES[tree]}", "gpu_named_work", "work_nodes"]
        paths = engine.rows(walk + _PATHS, uses)
        work = engine.rows(walk + _WORK.format(tree=TREES[tree]), uses) if time == "gpu" else []
    except duckdb.Error as e:
        raise InputError(f"flame: {sentence(e)}") from e
    stacks: dict[int | None, Stack] = {None: ()}
    turns: dict[int | None, tuple[int, ...]] = {None: ()}
    for _, _, path, parent, name, _ in paths:  # parents first
        stacks[path] = (*stacks[parent], name)
        turns[path] = (*turns[parent], path)
    found: dict[tuple[str, int], list[tuple[Stack, int]]] = {}
    if time == "cpu":
        # What is below a call beside it, so that it is one box in the order of time, too.
        for run_id, rank, path, _, _, ns in sorted(paths, key=lambda row: turns[row[2]]):
            found.setdefault((run_id, rank), []).append((stacks[path], ns))
    for run_id, rank, path, name, ns in sorted(work, key=lambda row: (row[2] is None, turns[row[2]])):
        found.setdefault((run_id, rank), []).append(((*(stacks[path] or (NO_OPERATOR,)), name), ns))
    return [Profile(run_id, rank, found[run_id, rank]) for run_id, rank in sorted(found)]


def flame(engine: Engine, output: Path, *, tree: str = "op", time: str = "gpu") -> Drawn:
    """Write the call trees of each rank: as speedscope's JSON (.json) or as collapsed stacks (.folded, .txt).

    `tree`: op (operators and ranges), module (with nn.Modules) or python (with all Python functions). `time`: gpu or
    cpu. Raises InputError.
    """
    write = writer_for(output)
    found = profiles(engine, tree, time)
    shown = [p._replace(stacks=[(stack, ns) for stack, ns in p.stacks if ns > 0]) for p in found]
    if not any(p.stacks for p in shown):
        what = "operators or ranges with CPU time" if time == "cpu" else "GPU work with times"
        raise InputError(f"flame: there is nothing to draw: a recording with {what} is needed")
    with whole_file(output) as part:
        part.write_text(write(shown, f"{time.upper()} time, {tree} tree"), encoding="utf-8")
    return Drawn(len(shown), sum(ns for p in shown for _, ns in p.stacks), engine.note)


def writer_for(output: Path) -> Callable[[Sequence[Profile], str], str]:
    """What makes the text of a file of its name. Raises InputError for a name that says no form of flame graphs."""
    says = "a flame graph is .speedscope.json (for https://www.speedscope.app) or .folded (flamegraph.pl)"
    return speedscope if ending_of(output, (".json", *_FOLDED), says) == ".json" else folded


def check_difference(output: Path) -> None:
    """Raise InputError unless a file has the name of collapsed stacks, which `difference` makes."""
    ending_of(output, _FOLDED, "the difference of two flame graphs is .folded (flamegraph.pl)", ".folded")


def _labels(found: Sequence[Profile]) -> list[str]:
    """What tells the profiles apart."""
    several = len({p.run_id for p in found}) > 1
    return [f"{p.run_id} rank {p.rank}" if several else f"rank {p.rank}" for p in found]


def speedscope(found: Sequence[Profile], title: str) -> str:
    """The profiles as a file of https://www.speedscope.app/file-format-schema.json, in ns."""
    frames: dict[str, int] = {}
    drawn: list[dict[str, Any]] = []
    for label, p in zip(_labels(found), found, strict=True):
        samples = [[frames.setdefault(name, len(frames)) for name in stack] for stack, _ in p.stacks]
        weights = [ns for _, ns in p.stacks]
        drawn.append(
            {
                "type": "sampled", "name": f"{label}: {title}", "unit": "nanoseconds", "startValue": 0,
                "endValue": sum(weights), "samples": samples, "weights": weights,
            }
        )  # fmt: skip
    runs = ", ".join(dict.fromkeys(p.run_id for p in found))
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": runs,
            "exporter": "tracequarry",
            "activeProfileIndex": 0,
            "shared": {"frames": [{"name": name} for name in frames]},
            "profiles": drawn,
        }
    )


def folded(found: Sequence[Profile], title: str) -> str:
    """The profiles as collapsed stacks, a line each: names with `;` between, and ns. Several ranks are roots."""
    several = len(found) > 1
    lines: Counter[str] = Counter()
    for label, p in zip(_labels(found), found, strict=True):
        for stack, ns in p.stacks:
            lines[fold((label, *stack) if several else stack)] += ns
    return "".join(f"{line} {ns}\n" for line, ns in lines.items())


def fold(stack: Stack) -> str:
    """A stack as a line without its count. A `;` in a name becomes `:`, as in stackcollapse-perf.pl: there is no escape
    for it; white space becomes a blank."""
    return ";".join(" ".join(name.replace(";", ":").split()) or "(no name)" for name in stack)


def difference(sides: Sequence[Engine], divisors: Sequence[int], time: str) -> str:
    """Two recordings in the form of difffolded.pl, for flamegraph.pl: stack, ns in A, ns in B.

    Ranks and runs of a side are taken together, and divided by its divisor to the nearest ns. Raises InputError.
    """
    a, b = (_sums(engine, divisor, time) for engine, divisor in zip(sides, divisors, strict=True))
    lines = {**a, **b}
    return "".join(f"{line} {a.get(line, 0)} {b.get(line, 0)}\n" for line in lines)


def _sums(engine: Engine, divisor: int, time: str) -> Mapping[str, int]:
    sums: Counter[str] = Counter()
    for p in profiles(engine, "op", time):
        for stack, ns in p.stacks:
            sums[fold(stack)] += ns
    return {line: (2 * ns + divisor) // (2 * divisor) for line, ns in sums.items() if ns > 0}
