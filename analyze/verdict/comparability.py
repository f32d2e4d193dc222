"""Can the runs of two sides be compared? What differs between them, and what makes a verdict meaningless."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from analyze.errors import InputError
from analyze.query.modules import defining
from analyze.verdict.sides import Side, Sides
from analyze.verdict.statistics import difference
from schemas.workload import COLUMNS

SAME_WORK = ("gpu_name", "device_type", "gpus", "world_size", "model", "batch_size", "image_size")
"""Columns of `runs` that both sides must share: with another GPU, batch or model, a step is another step."""
RECORDING = ("profiler", "detail")
"""How the steps were recorded: both sides must share it, unless the steps were timed without a profiler."""
STATE = ("clocks", "processes")
"""What GPU samples say of the machine. If it differs, a change of time is not blamed on the code."""
DESPITE = (*SAME_WORK, *RECORDING, *STATE)
CLOCK_PCT = 2.0
"""Clocks of the SMs that differ by more are another state of the machine."""
LIMITED_PCT = 10.0
"""So is time with clocks reduced for power or temperature that differs by more (% of the time)."""
_SETTINGS = tuple(c.name for c in COLUMNS)
_MACHINE = ("host", "driver_version", "cuda_version", "cudnn_version", "nccl_version", "torch_version", "git_commit")


class Comparability(NamedTuple):
    """What differs between the sides, in sentences."""

    differences: list[str]
    confounders: list[str]
    """Differences of the machine that may be why times differ: then neither side is called slower."""


def comparability(sides: Sides, despite: Collection[str] = (), strict: bool = True) -> Comparability:
    """Return what differs between the sides, and between the runs of one.

    `despite`: names of DESPITE that may differ. Raises InputError for an unknown one, and if what makes a comparison
    meaningless differs and `strict`.
    """
    for name in despite:
        if name not in DESPITE:
            raise InputError(f"--despite {name}: must be one of {', '.join(DESPITE)}")
    differences, meaningless = [], []
    facts = [_facts(sides, side) for side in sides]
    required = {*SAME_WORK, *(() if sides.undisturbed else RECORDING)} - {*despite}
    for name in dict.fromkeys([*SAME_WORK, *_SETTINGS, *RECORDING, *_MACHINE]):
        a, b = (_values(rows, name) for rows in facts)
        if a == b and len(a) < 2:
            continue
        known = all(None not in values for values in (a, b))
        if name == "detail" and not known:
            continue
        said = f"{name}: A {_listed(a)}, B {_listed(b)}"
        if strict and name in required and known:
            meaningless.append(said)
        elif a != b or name in (*SAME_WORK, *RECORDING):
            differences.append(f"differs: {said}")
    if meaningless:
        names = ",".join(said.partition(":")[0] for said in meaningless)
        raise InputError(
            f"a verdict needs runs of the same work, recorded alike: {'; '.join(meaningless)};"
            f" --despite {names} compares them"
        )
    state = state_differences(*(_states(side) for side in sides))
    confounders = [text for name, texts in state.items() if name not in despite for text in texts]
    differences += [text for texts in state.values() for text in texts]
    return Comparability([*differences, *_order(sides, facts)], confounders)


def _facts(sides: Sides, side: Side) -> list[dict[str, Any]]:
    """Return what is known of each run: columns of `runs`, the pass that its step time is of, and its detail."""
    names = dict.fromkeys([*SAME_WORK, "profiler", *_SETTINGS, *_MACHINE, "start_time", "workload_id"])
    listed = ", ".join("coalesce(tracks, gpus) AS gpus" if name == "gpus" else name for name in names)
    tracks = "SELECT run_id, count(*) AS tracks FROM gpu_tracks GROUP BY run_id"
    rows = side.engine.dicts(
        f"SELECT run_id::VARCHAR AS run_id, {listed} FROM runs LEFT JOIN ({tracks}) USING (run_id)", ["gpu_timeline"]
    )
    details, passes = _details(side), sides.passes_of_steps(side)
    for row in rows:
        run = row["workload_id"] or row["run_id"]
        row["profiler"] = passes.get(run, row["profiler"])
        # The GPU-only block records no operators, however detailed those of the full block are.
        row["detail"] = details.get(run) if sides.undisturbed or row["profiler"] != "gpu" else None
    return rows


def _details(side: Side) -> dict[str, str]:
    """Return how detailed the operators of each run were recorded, by the name of the run; of those with operators."""
    rows = side.all_passes.rows(
        "SELECT coalesce(workload_id, run_id::VARCHAR), bool_or(shapes), bool_or(stacks) FROM ("
        "SELECT run_id, bool_or(input_dims IS NOT NULL) AS shapes, false AS stacks FROM cpu_ops GROUP BY run_id"
        " UNION ALL SELECT run_id, false, true FROM ranges WHERE origin = 'python_function' GROUP BY run_id"
        ") JOIN (SELECT run_id, workload_id FROM runs) USING (run_id) GROUP BY ALL",
        defining(["cpu_ops", "ranges"]),
    )
    return {
        run: " + ".join(["operators", *(["shapes"] if shapes else []), *(["stacks"] if stacks else [])])
        for run, shapes, stacks in rows
    }


def _values(rows: list[dict[str, Any]], name: str) -> list[Any]:
    values = {row[name] for row in rows}
    return sorted(values, key=lambda value: (value is not None, str(value)))


def _listed(values: list[Any]) -> str:
    return " and ".join("unknown" if value is None else str(value) for value in values)


# --- The state of the GPUs, from their samples ---


class State(NamedTuple):
    """The GPUs of a run, while kernels ran on them."""

    mean_mhz: float | None
    highest_mhz: float | None
    power_limited_pct: float | None
    heat_limited_pct: float | None
    processes: int | None
    """Most processes on a GPU at a time; None where the driver does not show them."""
    other_processes: int | None = None
    """Most processes of other programs on a GPU; None if not known."""


def state_differences(a: Sequence[State], b: Sequence[State]) -> dict[str, list[str]]:
    """Return sentences on what differs between the GPUs of the runs of A and of B, by name of STATE."""
    return {"clocks": _clocks(a, b), "processes": _other_processes(a, b)}


def _states(side: Side) -> list[State]:
    """Return the state of each run with samples.

    The step time is of steps before the recorded ones, so all samples of the run count, each by the time in which a
    kernel ran: a GPU that waits has other clocks.
    """
    if "gpu_samples" not in side.engine.tables:
        return []
    limited = "100 * mean_over(limited_for_{}(clock_limits)::INTEGER, used)"
    rows = side.engine.rows(
        f"SELECT mean_over(sm_clock_mhz, used), max(sm_clock_mhz), {limited.format('power')}, {limited.format('heat')},"
        " nullif(max(processes), 0), max(other_processes)"
        " FROM (SELECT *, coalesce(gpu_util_pct, 100) AS used FROM gpu_samples) WHERE used > 0 GROUP BY run_id",
        ["arithmetic", "gpu_clocks"],
    )
    return [State(*row) for row in rows]


def _clocks(a: Sequence[State], b: Sequence[State]) -> list[str]:
    said = []
    for name, what in (("mean_mhz", "mean clock of the SMs"), ("highest_mhz", "highest clock of the SMs")):
        of_a, of_b = _known(a, name), _known(b, name)
        if of_a and of_b and _differ(of_a, of_b, CLOCK_PCT / 100 * _mean(of_a)):
            said.append(f"the {what} differs: A {_mean(of_a):,.0f} MHz, B {_mean(of_b):,.0f} MHz")
    for name, why in (("power_limited_pct", "power"), ("heat_limited_pct", "temperature")):
        of_a, of_b = _known(a, name), _known(b, name)
        if of_a and of_b and _differ(of_a, of_b, LIMITED_PCT):
            shares = f"{_mean(of_a):.0f} % of the time of A, {_mean(of_b):.0f} % of B"
            said.append(f"clocks were reduced for {why} in {shares}")
    return said


def _other_processes(a: Sequence[State], b: Sequence[State]) -> list[str]:
    """Say that another process was on the GPUs in some of the runs.

    Where the program's processes are not known, a run with the fewest processes is taken to have no others.
    """
    of_a, of_b = _known(a, "other_processes"), _known(b, "other_processes")
    own = 0.0
    if not of_a or not of_b:
        of_a, of_b = _known(a, "processes"), _known(b, "processes")
        if not of_a or not of_b:
            return []
        own = min(*of_a, *of_b)
    shared_a, shared_b = (sum(n > own for n in of) for of in (of_a, of_b))
    if shared_a * len(of_b) == shared_b * len(of_a):
        return []
    return [f"another process used a GPU in {shared_a} of {len(of_a)} runs of A and in {shared_b} of {len(of_b)} of B"]


def _known(states: Sequence[State], name: str) -> list[float]:
    return [value for state in states if (value := getattr(state, name)) is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _differ(a: Sequence[float], b: Sequence[float], limit: float) -> bool:
    """Whether the means differ by more than a limit; of repeated runs, and by more than runs do by chance."""
    interval = difference(a, b)
    by_chance = interval is not None and interval[0] <= 0 <= interval[1]
    return abs(_mean(b) - _mean(a)) > limit and not by_chance


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
