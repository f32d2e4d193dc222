"""The two sides of a comparison, run by run: what a run is, how long its steps take, and the time of its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from analyze.errors import InputError
from analyze.query.engine import Engine
from analyze.query.literals import text_literal
from analyze.query.query_files import find
from schemas.files import read_bounded
from schemas.manifest import is_run_id
from schemas.sweep import SWEEP_NAME, Cell

PASSES = ("gpu", "none", "torch", "nsys", "rocprof", "nvprof")
"""Passes in the order in which their steps are used."""

Key = tuple[str, ...]
Sums = dict[Key, tuple[float, float]]
"""Calls and ns by key."""


class Level(NamedTuple):
    """A level of comparison: the query, its parameters, what identifies a row, and where its numbers stand."""

    query: str
    params: dict[str, str]
    key: Key
    calls: dict[str, str]
    """Column with the number of calls, by time (gpu, cpu); a time that is not here does not exist at the level."""
    total: dict[str, str]
    drop_zeros: bool = False
    """Whether rows without any time on either side are left out."""


LEVELS: dict[str, Level] = {
    "kernel": Level("kernel-share", {"group": "name"}, ("name",), {"gpu": "calls"}, {"gpu": "total_ns"}),
    "family": Level("kernel-share", {"group": "family"}, ("family",), {"gpu": "calls"}, {"gpu": "total_ns"}),
    "op": Level(
        "op-tree",
        {},
        ("path", "name"),
        {"gpu": "calls", "cpu": "calls"},
        {"gpu": "self_gpu_ns", "cpu": "self_cpu_ns"},
        drop_zeros=True,
    ),
    "module": Level("kernel-share", {"group": "module"}, ("module",), {"gpu": "calls"}, {"gpu": "total_ns"}),
    "phase": Level("phases", {}, ("phase",), {"gpu": "gpu_ops", "cpu": "calls"}, {"gpu": "gpu_ns", "cpu": "cpu_ns"}),
}


@dataclass(frozen=True)
class Measure:
    """A number of a run as a whole."""

    name: str
    unit: str
    column: str
    """Where the query `summary` has it; of the step time, `timed_steps` of a side."""
    undisturbed: str = ""
    """Its column in steps without a profiler, if there is one."""
    scale: float = 1
    """From the column to the unit."""
    less_than: float | None = None
    """The measure is this number less the column."""
    more: str = "more"
    """The verdict if B has more of it than A."""
    less: str = "less"

    def value(self, row: Mapping[str, Any], without_profiler: bool) -> float | None:
        """Return its value in a row of `summary`."""
        found = row[self.undisturbed if self.undisturbed and without_profiler else self.column]
        if found is None:
            return None
        return found * self.scale if self.less_than is None else self.less_than - found


STEP_TIME = Measure("step_time", "ms", "", scale=1e-6, more="slower", less="faster")
MEASURES = (
    STEP_TIME,
    Measure("throughput", "images/s", "images_per_s", more="faster", less="slower"),
    Measure("mfu", "%", "mfu_pct", "undisturbed_mfu_pct"),
    Measure("gpu_busy", "%", "idle_pct", "undisturbed_idle_pct", less_than=100),
    Measure("exposed_comm", "%", "exposed_comm_pct"),
    Measure("idle", "%", "idle_pct", "undisturbed_idle_pct"),
    Measure("peak_memory", "MiB", "peak_bytes", scale=2**-20),
)


class Step(NamedTuple):
    """A step of a rank."""

    rank: int
    step: int
    ns: float


@dataclass(frozen=True)
class Side:
    """One of the two sides, opened for questions."""

    label: str
    engine: Engine
    """Its runs, one pass of each, together."""
    others: dict[str | None, Side] = field(default_factory=dict, repr=False)
    """The same runs with another preferred pass, by its name."""

    def preferring(self, query: str) -> Side:
        """Return the side with the passes that a query prefers."""
        prefer, selection = find(query).prefer, self.engine.selection
        if prefer == selection.prefer:
            return self
        if prefer not in self.others:
            self.others[prefer] = Side(self.label, Engine(self.engine.stores, replace(selection, prefer=prefer)))
        return self.others[prefer]

    @cached_property
    def by_run(self) -> Engine:
        """The same passes, each run a group."""
        listed = ", ".join(map(text_literal, self.engine.run_ids))
        selection = self.engine.selection
        where = (*selection.where, f"run_id IN ({listed})")
        return Engine(self.engine.stores, replace(selection, where=where, by=("run_id",)))

    @cached_property
    def runs(self) -> list[str]:
        """The runs in order of their start, by the name of the run folder, else by run_id."""
        return list(dict.fromkeys(name for _, name, _ in self._passes))

    @cached_property
    def _passes(self) -> list[tuple[str, str, int | None]]:
        """Run id, name of the run, and its steps, of each run that is read."""
        return self.engine.rows(
            "WITH by_run AS (SELECT run_id, max(steps) AS n FROM step_counts GROUP BY run_id)"
            " SELECT run_id::VARCHAR, coalesce(workload_id, run_id::VARCHAR), n"
            " FROM runs LEFT JOIN by_run USING (run_id) ORDER BY start_time, run_id",
            ["steps"],
        )

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of the run of each pass, by run_id."""
        rows = self.all_passes.rows("SELECT run_id::VARCHAR, coalesce(workload_id, run_id::VARCHAR) FROM runs")
        return dict(rows)

    def name_of(self, run_id: str) -> str:
        """Return the name of the run that a pass is of."""
        return self.names[run_id]

    @property
    def steps(self) -> int | None:
        """Recorded training steps of all runs together; None where those of a run are not known."""
        counts = [n for _, _, n in self._passes]
        return sum(n or 0 for n in counts) if all(counts) else None

    @property
    def steps_of_runs(self) -> dict[str, int]:
        """Recorded training steps by run, of those that are known."""
        counts: dict[str, int] = {}
        for _, name, n in self._passes:
            counts[name] = counts.get(name, 0) + (n or 0)
        return {name: n for name, n in counts.items() if n}

    def sums(self, level: Level, time: str) -> dict[str, Sums]:
        """Return calls and ns by key of each run."""
        answer = self.by_run.query(find(level.query), level.params)
        names = [c.name for c in answer.columns]
        key = [names.index(k) for k in level.key]
        run, calls, total = names.index("run_id"), names.index(level.calls[time]), names.index(level.total[time])
        sums: dict[str, Sums] = {name: {} for name in self.runs}
        for row in answer.rows():
            of_run = sums[self.name_of(row[run])]
            k = tuple(row[i] if row[i] is not None else "(none)" for i in key)
            n, ns = of_run.get(k, (0, 0))
            of_run[k] = (n + (row[calls] or 0), ns + (row[total] or 0))
        return sums

    @cached_property
    def all_passes(self) -> Engine:
        """All passes of the runs."""
        selection = self.engine.selection
        return Engine(self.engine.stores, replace(selection, prefer="all", by=()))

    @cached_property
    def summaries(self) -> list[dict[str, Any]]:
        """The row of each run in the answer to `summary`."""
        return self.all_passes.query(find("summary")).dicts()

    @property
    def by_name(self) -> dict[str, dict[str, Any]]:
        """The same by the name of the run."""
        return {self.name_of(row["run_id"]): row for row in self.summaries}

    @cached_property
    def timed_steps(self) -> dict[str, dict[bool, dict[str, list[Step]]]]:
        """The steps of each run, by whether they were timed without a profiler, and by pass."""
        rows = self.all_passes.rows(
            "SELECT coalesce(workload_id, run_id::VARCHAR), profiler, rank, step,"
            " undisturbed OR profiler IS NOT DISTINCT FROM 'none' AS without,"
            " CASE WHEN undisturbed THEN timed_step_ns ELSE step_ns END AS ns"
            " FROM step_times JOIN (SELECT run_id, workload_id, profiler FROM runs) USING (run_id)"
            " WHERE (undisturbed OR NOT warmup) AND ns > 0 ORDER BY ALL",
            ["steps"],
        )
        found: dict[str, dict[bool, dict[str, list[Step]]]] = {}
        for run, profiler, rank, step, without, ns in rows:
            passes = found.setdefault(run, {}).setdefault(without, {})
            passes.setdefault(profiler or "", []).append(Step(rank, step, ns))
        return found


@dataclass(frozen=True)
class Sides:
    """Both sides, and what they have in common."""

    a: Side
    b: Side

    def __iter__(self) -> Any:
        return iter((self.a, self.b))

    @cached_property
    def undisturbed(self) -> bool:
        """Whether all runs have steps that were timed without a profiler."""
        return all(side.timed_steps.get(run, {}).get(True) for side in self for run in side.names.values())

    def of_runs(self, measure: Measure, side: Side) -> dict[str, float]:
        """Return the measure of each run of a side that knows it."""
        if measure is STEP_TIME:
            means = {run: mean_steps(steps) for run, steps in self.steps(side).items() if steps}
            return {run: measure.scale * math.fsum(ns) / len(ns) for run, ns in means.items()}
        undisturbed = self.undisturbed and all(
            not measure.undisturbed or row[measure.undisturbed] is not None for one in self for row in one.summaries
        )
        found = {run: measure.value(row, undisturbed) for run, row in side.by_name.items()}
        return {run: value for run, value in found.items() if value is not None}

    def values(self, measure: Measure) -> tuple[list[float], list[float]]:
        """Return the measure of each run of A and of B, of those that know it."""
        a, b = (list(self.of_runs(measure, side).values()) for side in self)
        return a, b

    def steps(self, side: Side) -> dict[str, list[Step]]:
        """Return the steps of each run that the step time is of."""
        return {run: steps for run, (_, steps) in self._chosen_steps(side).items()}

    def passes_of_steps(self, side: Side) -> dict[str, str]:
        """Return the pass of each run that the step time is of."""
        return {run: chosen for run, (chosen, _) in self._chosen_steps(side).items()}

    def _chosen_steps(self, side: Side) -> dict[str, tuple[str, list[Step]]]:
        passes = {
            run: kinds[self.undisturbed] for run, kinds in side.timed_steps.items() if kinds.get(self.undisturbed)
        }
        return {run: (first := min(of, key=self._place_of_pass), of[first]) for run, of in passes.items()}

    def _place_of_pass(self, name: str) -> tuple[bool, int]:
        """A pass that all runs have comes first."""
        everywhere = all(
            name in kinds.get(self.undisturbed, {}) for side in self for kinds in side.timed_steps.values()
        )
        return not everywhere, PASSES.index(name) if name in PASSES else len(PASSES)

    @property
    def repeated(self) -> bool:
        """Whether both sides have two runs or more."""
        return min(len(side.runs) for side in self) > 1


def open_sides(a: Engine, b: Engine) -> Sides:
    """Return both sides. Raises InputError if one has no run."""
    for label, engine in (("A", a), ("B", b)):
        if not engine.run_ids:
            raise InputError(f"compare: {label} has no run that matched the --where options")
    return Sides(Side("A", a), Side("B", b))


def mean_steps(steps: Sequence[Step]) -> list[float]:
    """Return the length of each step, as the mean over the ranks, in order."""
    by_step: dict[int, list[float]] = {}
    for one in steps:
        by_step.setdefault(one.step, []).append(one.ns)
    return [math.fsum(by_step[n]) / len(by_step[n]) for n in sorted(by_step)]


class _Sweep(msgspec.Struct):
    cells: list[Cell]


def recorded_sides(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the run folders of both sides below a folder of `collect ab`. Raises InputError."""
    path = folder / SWEEP_NAME
    try:
        cells = msgspec.json.decode(read_bounded(path), type=_Sweep).cells
    except FileNotFoundError as e:
        raise InputError(
            f"{folder}: not a folder of collect ab; compare needs two sides: A B, or A... --with B..."
        ) from e
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InputError(f"{path}: cannot be read: {e}") from e
    runs: dict[str, list[Path]] = {"a": [], "b": []}
    for cell in cells:
        side = cell.values.get("side")
        if cell.status == "done" and side in runs and cell.run and is_run_id(cell.run):
            runs[side].append(folder / cell.run)
    for side, found in runs.items():
        if not found:
            raise InputError(f"{path}: side {side} has no run that is done")
    return runs["a"], runs["b"]
