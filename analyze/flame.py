"""Flame graphs: call trees with the CPU or GPU time of each stack, for speedscope and for Brendan Gregg's scripts.

Of a memory snapshot, stacks of Python functions with the bytes that they hold.

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

from analyze.atomic_output import atomic_output, ending_of
from analyze.errors import InputError
from analyze.query.sql_checks import sentence

if TYPE_CHECKING:
    from analyze.query.engine import Engine

TREES = {"op": "op", "module": "module", "python": "stack"}
"""What a stack is of, and the tree in the table call_paths that has it."""

MEMORY = "memory"
"""The tree of a memory snapshot: stacks that hold bytes at the peak."""

TIMES = ("gpu", "cpu")

_FOLDED = (".folded", ".txt")

Stack = tuple[str, ...]

_PATHS = """
SELECT
    run_id::VARCHAR, rank, path, parent, coalesce(replace(name, 'nn.Module: ', ''), '(no name)') AS name, self_ns,
    first_ns
FROM tree_paths('{tree}')
ORDER BY path
"""
_WORK = """
SELECT run_id::VARCHAR, rank, path, name, total_ns FROM tree_work('{tree}') ORDER BY first_ns, name
"""

_HELD = """
SELECT r.run_id::VARCHAR, r.rank, r.path, sum(r.bytes)::BIGINT
FROM allocator_requests r JOIN allocator_moments m USING (run_id, rank, device)
WHERE m.moment = 'peak' AND r.event <= m.at_event AND coalesce(r.freed_event > m.at_event, true)
GROUP BY r.run_id, r.rank, r.path
ORDER BY r.path
"""

NO_OPERATOR = "(no operator)"
"""The root of GPU work that the recording links to no operator."""


class Profile(NamedTuple):
    """The stacks of one rank, in the order of the calls, each with its self time in ns, or its bytes."""

    run_id: str
    rank: int
    stacks: list[tuple[Stack, int]]


class Drawn(NamedTuple):
    """What was written: profiles (one per rank), their time in ns or bytes, and what is left out, in a sentence."""

    profiles: int
    total: int
    note: str


def profiles(engine: Engine, tree: str = "op", time: str = "gpu") -> list[Profile]:
    """The stacks of every rank that the engine selects, by run and rank. Raises InputError."""
    if tree not in (*TREES, MEMORY):
        raise InputError(f"--tree {tree}: must be one of {', '.join((*TREES, MEMORY))}")
    if time not in TIMES:
        raise InputError(f"--time {time}: must be one of {', '.join(TIMES)}")
    if tree == MEMORY:
        return _held(engine)
    try:
        paths = engine.rows(_PATHS.format(tree=TREES[tree]), ["call_sums"])
        work = engine.rows(_WORK.format(tree=TREES[tree]), ["call_sums"]) if time == "gpu" else []
    except duckdb.Error as e:
        raise InputError(f"flame: {sentence(e)}") from e
    stack_of: dict[int | None, Stack] = {None: ()}
    first: dict[tuple[str, int, Stack], int] = {}
    for run_id, rank, path, parent, name, _, first_ns in paths:  # parents first
        stack_of[path] = stack = (*stack_of[parent], name)
        first[run_id, rank, stack] = min(first_ns, first.get((run_id, rank, stack), first_ns))

    def turn(key: tuple[str, int, Stack]) -> list[tuple[int, str]]:
        run_id, rank, stack = key
        return [(first[run_id, rank, stack[: n + 1]], name) for n, name in enumerate(stack)]

    # In the order of calls, what is below a call next to it: so it is one box in the order of time, too.
    found: dict[tuple[str, int], Counter[Stack]] = {}
    if time == "cpu":
        for run_id, rank, stack in sorted(first, key=turn):
            found.setdefault((run_id, rank), Counter())[stack] = 0
        for run_id, rank, path, _, _, self_ns, _ in paths:
            found[run_id, rank][stack_of[path]] += self_ns
    work.sort(key=lambda row: (row[2] is None, turn((row[0], row[1], stack_of[row[2]]))))
    for run_id, rank, path, name, ns in work:
        found.setdefault((run_id, rank), Counter())[(*(stack_of[path] or (NO_OPERATOR,)), name)] += ns
    return [Profile(run_id, rank, list(found[run_id, rank].items())) for run_id, rank in sorted(found)]


def _held(engine: Engine) -> list[Profile]:
    """The bytes that each stack of the program's frames holds at the peak of a memory snapshot, by run and rank."""
    found: dict[tuple[str, int], list[tuple[Stack, int]]] = {}
    for run_id, rank, path, size in engine.rows(_HELD, ["allocator"]):
        found.setdefault((run_id, rank), []).append((tuple(path.split(" > ")), size))
    return [Profile(*key, stacks) for key, stacks in sorted(found.items())]


def flame(engine: Engine, output: Path, *, tree: str = "op", time: str = "gpu") -> Drawn:
    """Write the call trees of each rank: as speedscope's JSON (.json) or as collapsed stacks (.folded, .txt).

    `tree`: op (operators and ranges), module (with nn.Modules), python (with all Python functions), or memory: bytes
    that the program's frames hold at their peak. `time`: gpu or cpu. Raises InputError.
    """
    write = writer_for(output)
    found = profiles(engine, tree, time)
    shown = [p._replace(stacks=[(stack, ns) for stack, ns in p.stacks if ns > 0]) for p in found]
    if not any(p.stacks for p in shown):
        what = "operators or ranges with CPU time" if time == "cpu" else "GPU work with times"
        what = "a history of allocations" if tree == MEMORY else what
        raise InputError(f"flame: there is nothing to draw: a recording with {what} is needed")
    title = "memory held at the peak" if tree == MEMORY else f"{time.upper()} time, {tree} tree"
    with atomic_output(output) as part:
        part.write_text(write(shown, title, "bytes" if tree == MEMORY else "nanoseconds"), encoding="utf-8")
    return Drawn(len(shown), sum(ns for p in shown for _, ns in p.stacks), engine.note)


def writer_for(output: Path) -> Callable[[Sequence[Profile], str, str], str]:
    """Return the function that writes the format of a file name. Raises InputError for another format."""
    says = "a flame graph is .speedscope.json (for https://www.speedscope.app) or .folded (flamegraph.pl)"
    return speedscope if ending_of(output, (".json", *_FOLDED), says) == ".json" else folded


def check_difference(output: Path) -> None:
    """Raise InputError unless a file name is that of collapsed stacks, which `difference` writes."""
    ending_of(output, _FOLDED, "the difference of two flame graphs is .folded (flamegraph.pl)", ".folded")


def _labels(found: Sequence[Profile]) -> list[str]:
    """Return labels that distinguish the profiles."""
    several = len({p.run_id for p in found}) > 1
    return [f"{p.run_id} rank {p.rank}" if several else f"rank {p.rank}" for p in found]


def speedscope(found: Sequence[Profile], title: str, unit: str) -> str:
    """The profiles as a file of https://www.speedscope.app/file-format-schema.json, in ns or bytes."""
    frames: dict[str, int] = {}
    drawn: list[dict[str, Any]] = []
    for label, p in zip(_labels(found), found, strict=True):
        samples = [[frames.setdefault(name, len(frames)) for name in stack] for stack, _ in p.stacks]
        weights = [ns for _, ns in p.stacks]
        drawn.append(
            {
                "type": "sampled", "name": f"{label}: {title}", "unit": unit, "startValue": 0,
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


def folded(found: Sequence[Profile], title: str, unit: str) -> str:
    """The profiles as collapsed stacks, a line each: names with `;` between, and the count. Several ranks are roots."""
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
