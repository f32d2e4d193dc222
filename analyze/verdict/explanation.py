"""Which parts of the step explain its change: parts of both sides that add up to the step, and so to its change."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analyze.errors import InputError
from analyze.query.query_files import find
from analyze.verdict.sides import STEP_TIME, Side, Sides

GROUPS = ("op", "module", "phase", "family")
"""What parts are named by: the first by which both sides have names in common. Modules come before operators if only
one side is compiled: one operator is then another one, or a part of a fused kernel.
"""
COMMON_PCT = 50.0
"""Share of the work of both sides that must have names in common."""
NOT_RECORDED = "(step_time less the recorded step)"

Parts = dict[str, tuple[float, float]]
"""Exposed and hidden ns of each part of a step."""


class Explanation(NamedTuple):
    """The parts of the step in each run of A and of B, and what they are, in sentences."""

    a: dict[str, Parts]
    b: dict[str, Parts]
    notes: list[str]


class PartChange(NamedTuple):
    """A part of the step: its time in each run that is not hidden, and its means."""

    part: str
    a: list[float]
    b: list[float]
    hidden_a: float
    hidden_b: float

    @property
    def means(self) -> tuple[float, float]:
        """The mean over the runs of A, and of B."""
        return math.fsum(self.a) / len(self.a), math.fsum(self.b) / len(self.b)


def explanation(sides: Sides) -> Explanation:
    """Return the parts of the steps of both sides. Raises InputError if a run has no recorded steps."""
    a, b = (side.preferring("step-parts") for side in sides)
    if all("gpu_work" in side.engine.tables for side in (a, b)):
        # Compiled code has no calls of inner modules: work counts for the innermost that both sides call.
        common = _modules(sides.a) & _modules(sides.b)
        one_is_compiled = bool(common) and _compiled(sides.a) != _compiled(sides.b)
        for group in GROUPS:
            if (group == "op" and one_is_compiled) or (group == "module" and not common):
                continue
            modules = {"modules": f"^({'|'.join(map(re.escape, sorted(common)))})$"} if group == "module" else {}
            found = [_of_gpu(side, {"group": group, **modules}) for side in (a, b)]
            if group == GROUPS[-1] or _common_pct(*found) >= COMMON_PCT:
                break
        notes = [f"parts of the step of a GPU, by {group} (step-parts); hidden work runs behind other work"]
        if one_is_compiled:
            notes.append("one side is compiled: its operators are not those of the other")
        elif group != GROUPS[0]:
            notes.append("the sides have few operator names in common, as eager and compiled programs do")
    else:
        found = [_of_cpu(side.preferring("critical-path")) for side in sides]
        notes = ["parts of the critical path of a step: no work on GPUs was recorded"]
    for side, runs in zip(sides, found, strict=True):
        if lacking := [run for run in side.runs if not runs.get(run)]:
            raise InputError(f"--level step: {side.label}, run {lacking[0]} has no recorded training steps")
    return Explanation(found[0], found[1], notes)


def part_changes(sides: Sides, found: Explanation) -> list[PartChange]:
    """Return the parts of both sides. Their times add up to the step time of each run, exactly.

    Where the step time is of other steps than those recorded, a last part is the difference.
    """
    names = dict.fromkeys(name for runs in (found.a, found.b) for parts in runs.values() for name in parts)
    rows = [
        PartChange(n, _times(found.a, n), _times(found.b, n), _hidden(found.a, n), _hidden(found.b, n)) for n in names
    ]
    rest = []
    for side, runs in zip(sides, (found.a, found.b), strict=True):
        whole = sides.of_runs(STEP_TIME, side)
        rest.append([whole[run] * 1e6 - math.fsum(ns for ns, _ in parts.values()) for run, parts in runs.items()])
    return [*rows, PartChange(NOT_RECORDED, rest[0], rest[1], 0, 0)]


def _of_gpu(side: Side, params: dict[str, str]) -> dict[str, Parts]:
    rows = side.by_run.query(find("step-parts"), params).dicts()
    return _by_run(side, [(r["run_id"], r[params["group"]], r["exposed_ns"], r["hidden_ns"]) for r in rows])


def _modules(side: Side) -> set[str]:
    """The names of the modules that every run of a side calls."""
    rows = side.all_passes.rows(
        "SELECT DISTINCT coalesce(workload_id, run_id::VARCHAR), substr(name, 12) FROM ranges"
        " JOIN (SELECT run_id, workload_id FROM runs) USING (run_id)"
        " WHERE origin = 'python_function' AND starts_with(name, 'nn.Module: ')"
    )
    of_runs: dict[str, set[str]] = {run: set() for run in side.runs}
    for run, name in rows:
        of_runs[run].add(name)
    return set.intersection(*of_runs.values())


def _compiled(side: Side) -> bool:
    """Whether a run of a side has code of torch.compile."""
    return bool(side.all_passes.rows("SELECT 1 FROM workload_kinds WHERE kind = 'compiled'", ["workload_kinds"]))


def _of_cpu(side: Side) -> dict[str, Parts]:
    rows = side.by_run.query(find("critical-path"), {"window": "step", "group": "name"}).dicts()
    windows = {(r["run_id"], r["rank"], r["step"]) for r in rows}
    steps: dict[str, int] = {}
    for run_id, _, _ in windows:
        steps[run_id] = steps.get(run_id, 0) + 1
    return _by_run(
        side, [(r["run_id"], f"{r['kind']}: {r['name']}", r["total_ns"] / steps[r["run_id"]], 0.0) for r in rows]
    )


def _by_run(side: Side, rows: Sequence[tuple[str, str, float, float]]) -> dict[str, Parts]:
    found: dict[str, Parts] = {}
    for run_id, part, exposed, hidden in rows:
        parts = found.setdefault(side.name_of(run_id), {})
        before = parts.get(part, (0.0, 0.0))
        parts[part] = (before[0] + exposed, before[1] + hidden)
    return found


def _common_pct(a: Mapping[str, Parts], b: Mapping[str, Parts]) -> float:
    """Share of the work that is in parts which both sides have."""
    totals: list[dict[str, float]] = [{}, {}]
    for total, runs in zip(totals, (a, b), strict=True):
        for name, (ns, _) in (item for parts in runs.values() for item in parts.items()):
            if not name.startswith("("):  # not idle time, nor work of unknown origin
                total[name] = total.get(name, 0) + ns
    common = totals[0].keys() & totals[1].keys()
    shares = [sum(t[n] for n in common) / whole if (whole := sum(t.values())) else 0.0 for t in totals]
    return 100 * min(shares)


def _times(runs: Mapping[str, Parts], name: str, at: int = 0) -> list[float]:
    return [parts.get(name, (0.0, 0.0))[at] for parts in runs.values()]


def _hidden(runs: Mapping[str, Parts], name: str) -> float:
    return math.fsum(_times(runs, name, 1)) / len(runs)
