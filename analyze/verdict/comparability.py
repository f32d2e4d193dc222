"""Can the runs of two sides be compared? What differs between them, and what makes a verdict meaningless."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from analyze.errors import InputError
from analyze.query.query_files import find
from analyze.verdict.sides import Side, Sides
from schemas.workload import COLUMNS

SAME_WORK = ("gpu_name", "device_type", "gpus", "world_size", "model", "batch_size", "image_size")
"""Columns of `runs` that both sides must share: with another GPU, batch or model, a step is another step."""
_SETTINGS = tuple(c.name for c in COLUMNS)
_MACHINE = ("host", "driver_version", "cuda_version", "cudnn_version", "nccl_version", "torch_version", "profiler")
CLOCK_PCT = 2.0
"""Mean SM clocks that differ by more are said, and no code is blamed for a change of time."""
LIMITED_PCT = 10.0
"""So is time with clocks reduced for power or temperature, of which one side has this much more (% of the time)."""


class Comparability(NamedTuple):
    """What differs between the sides, in sentences."""

    differences: list[str]
    confounders: list[str]
    """Differences of the machine that may be why times differ: then neither side is called slower."""


def comparability(sides: Sides, despite: Collection[str] = (), strict: bool = True) -> Comparability:
    """Return what differs between the sides, and between the runs of one.

    `despite`: columns of SAME_WORK that may differ. Raises InputError for an unknown one, and if others differ and
    `strict`.
    """
    for name in despite:
        if name not in SAME_WORK:
            raise InputError(f"--despite {name}: must be one of {', '.join(SAME_WORK)}")
    differences, meaningless = [], []
    facts = [_facts(side) for side in sides]
    for name in dict.fromkeys([*SAME_WORK, *_SETTINGS, *_MACHINE]):
        a, b = (_values(rows, name) for rows in facts)
        if a == b and len(a) < 2:
            continue
        known = all(None not in values for values in (a, b))
        said = f"{name}: A {_listed(a)}, B {_listed(b)}"
        if strict and name in SAME_WORK and known and name not in despite:
            meaningless.append(said)
        elif a != b or name in SAME_WORK:
            differences.append(f"differs: {said}")
    if meaningless:
        names = ",".join(said.partition(":")[0] for said in meaningless)
        raise InputError(
            f"a verdict needs runs of the same work: {'; '.join(meaningless)}; --despite {names} compares them"
        )
    states = [_state(side) for side in sides]
    confounders = _machine_differences(*states)
    return Comparability([*differences, *confounders, *_order(sides, facts)], confounders)


def _facts(side: Side) -> list[dict[str, Any]]:
    names = dict.fromkeys([*SAME_WORK, *_SETTINGS, *_MACHINE, "start_time"])
    listed = ", ".join("coalesce(tracks, gpus) AS gpus" if name == "gpus" else name for name in names)
    tracks = "SELECT run_id, count(*) AS tracks FROM gpu_tracks GROUP BY run_id"
    return side.engine.dicts(f"SELECT {listed} FROM runs LEFT JOIN ({tracks}) USING (run_id)", ["gpu_timeline"])


def _values(rows: list[dict[str, Any]], name: str) -> list[Any]:
    values = {row[name] for row in rows}
    return sorted(values, key=lambda value: (value is not None, str(value)))


def _listed(values: list[Any]) -> str:
    return " and ".join("unknown" if value is None else str(value) for value in values)


def _state(side: Side) -> dict[str, float | None]:
    """Means over the GPUs and runs of what was sampled while they worked; None where nothing was."""
    rows = side.engine.query(find("hardware")).dicts() if "gpu_samples" in side.engine.tables else []
    mean = {}
    for name in ("sm_clock_mhz", "power_limited_pct", "heat_limited_pct", "max_processes"):
        values = [row[name] for row in rows if row[name] is not None]
        combine = max(values) if name == "max_processes" and values else sum(values) / len(values) if values else None
        mean[name] = combine
    return mean


def _machine_differences(a: dict[str, float | None], b: dict[str, float | None]) -> list[str]:
    said = []
    clock_a, clock_b = a["sm_clock_mhz"], b["sm_clock_mhz"]
    if clock_a and clock_b and abs(clock_b / clock_a - 1) > CLOCK_PCT / 100:
        said.append(f"the clock of the SMs differs: A {clock_a:,.0f} MHz, B {clock_b:,.0f} MHz")
    for name, why in (("power_limited_pct", "power"), ("heat_limited_pct", "temperature")):
        limited_a, limited_b = a[name], b[name]
        if limited_a is not None and limited_b is not None and abs(limited_b - limited_a) > LIMITED_PCT:
            said.append(f"clocks were reduced for {why} in {limited_a:.0f} % of the time of A, {limited_b:.0f} % of B")
    others_a, others_b = a["max_processes"], b["max_processes"]
    if others_a is not None and others_b is not None and others_a != others_b:
        said.append(
            f"processes on a GPU differ: A {others_a:.0f}, B {others_b:.0f}: another program ran beside one side"
        )
    return said


def _order(sides: Sides, facts: list[list[dict[str, Any]]]) -> list[str]:
    """Say that all runs of one side were before those of the other."""
    a, b = ([row["start_time"] for row in rows if row["start_time"]] for rows in facts)
    if not sides.repeated or not a or not b or (min(a) < max(b) and min(b) < max(a)):
        return []
    first, then = ("A", "B") if max(a) <= min(b) else ("B", "A")
    return [
        f"all runs of {first} were before those of {then}: a change of the machine in between is part of the change"
        " (collect ab alternates)"
    ]
