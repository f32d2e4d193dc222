"""Describe recordings: how they were read, what data they have, which queries they can answer, what to run next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.query.query_declaration import ResultColumn
from analyze.query.query_files import find
from analyze.query.selection import Selection
from analyze.render import inline
from analyze.shell import command
from analyze.summary import Measure, measures, percent
from schemas.urls import as_given

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from analyze.query.data_needs import Needs
    from analyze.query.engine import Engine
    from analyze.query.query_declaration import Query
    from analyze.store.store import Store

_FEW = 3
"""Up to this many runs are described one by one; more are rows of a table."""
_PROFILERS = {
    "torch": "torch.profiler", "gpu": "GPU only", "nsys": "Nsight Systems", "ncu": "Nsight Compute", "nvprof": "nvprof",
    "rocprof": "rocprofv3",
    "memory": "a memory snapshot of PyTorch", "flight_recorder": "dumps of PyTorch's flight recorder",
}  # fmt: skip
_VERSIONS = (
    ("PyTorch", "torch_version"),
    ("CUDA", "cuda_version"),
    ("driver", "driver_version"),
    ("NCCL", "nccl_version"),
)
_WRITER = re.compile(r"[:;] written by ([^,;]+)")
"""Names the program in the warning about a Chrome trace that is not of torch.profiler."""
_OPTIONS = (("shapes", "operators with input shapes"), ("stacks", "Python stacks"), ("memory", "allocator events"))
"""What torch.profiler records only on request."""
_LAUNCHING = {"operators", "operators with input shapes"}
"""Data that a GPU-only block takes from its full block."""
_FIRST = ("hang", "memory-oom", "breakdown", "kernel-share", "roofline", "ops", "memory-live", "steps")
"""Queries that are suggested first, if their data is there."""
_EMPTY = "these have rows only if:"
_UNANSWERED = "these need data that was not recorded (how to record it):"
_COSTS = """
SELECT
    run_id::VARCHAR, arg_max(printf('a step takes %.2f times as long as without the profiler (%.3f ms, %.3f ms)',
        slowdown, recorded_step_ns / 1e6, undisturbed_step_ns / 1e6), (slowdown, -rank))
FROM step_costs
WHERE slowdown IS NOT NULL
GROUP BY run_id
"""
"""The overhead of recording in each run, of the rank with most overhead."""
_KINDS = "SELECT run_id::VARCHAR, string_agg(kind, ', ' ORDER BY turn) FROM workload_kinds GROUP BY run_id"


class Run(NamedTuple):
    """A run as `analyze info` describes it."""

    run_id: str
    columns: dict[str, Any]
    """Its row of `runs`."""
    steps: int | None
    held: set[str]
    """Names of `data_needs.DATA_KINDS`."""
    kinds: str | None = None
    """Its kinds of workload; None where nothing shows them."""
    figures: str = ""
    """The figures of `summary` in words; empty if none is known, or of many runs."""
    cost: str | None = None
    """How much longer a recorded step is than an undisturbed one, in words; None where not both were timed."""


class Info(NamedTuple):
    """What was found in some paths."""

    runs: list[Run]
    answered: list[Query]
    unanswered: list[tuple[Query, Needs]]
    """Queries that cannot be answered, with what is missing."""
    empty: list[Query]
    """Queries without rows: the data that they need was recorded, but their `@rows` condition does not hold."""

    def _repr_html_(self) -> str:
        groups = ((group, ", ".join(names)) for group, names in _by_group(self).items())
        shown: list[tuple[str, Iterable[tuple[str, str]]]] = [(f"{_of_all(self)} queries can be answered:", groups)]
        if self.empty:
            shown += [(_EMPTY, _conditions(self))]
        if self.unanswered:
            shown += [(_UNANSWERED, _missing_data(self))]
        said = [part for title, pairs in shown for part in (inline.element("p", title), inline.pairs(pairs))]
        return inline.fragment(*_run_elements(self.runs), *said)


def inspect(stores: Sequence[Store], selection: Selection, folders: Sequence[Path] = ()) -> Info:
    """Look into stores: at the names of tables, a few columns, and the main figures of few runs. Raises InputError.

    Of the queries, only those that may have no rows (@rows) are run, for one row, and `summary`.
    `folders`: more folders of query files.
    """
    from analyze.query.data_needs import holdings, needs_of
    from analyze.query.engine import Engine
    from analyze.query.query_files import catalog

    engine = Engine(stores, replace(selection, profiler=selection.profiler or "all"))
    held = holdings(engine)
    queries = sorted(catalog(folders).values(), key=lambda q: (q.group, q.name))
    # One of several passes of a workload answers a query; without a note there is one pass of each workload.
    several = Engine(stores, selection).note
    passes = {q.prefer for q in queries}
    engines = {p: Engine(stores, replace(selection, prefer=p)) if several else engine for p in passes}
    answered, unanswered, empty = [], [], []
    for query in queries:
        lacking = needs_of(query, {}).lacking(set().union(*(held[r] for r in engines[query.prefer].run_ids)))
        if lacking.groups:
            unanswered.append((query, lacking))
        elif query.rows_if and not engines[query.prefer].query(query, limit=1).rows():
            empty.append(query)
        else:
            answered.append(query)
    return Info(_runs(engine, held), answered, unanswered, empty)


def _runs(engine: Engine, held: dict[str, set[str]]) -> list[Run]:
    counted = "SELECT run_id::VARCHAR, max(steps) FROM step_counts GROUP BY run_id"
    steps = dict(engine.rows(counted, ["steps"]))
    costs = dict(engine.rows(_COSTS, ["profiler_cost"]))
    kinds = dict(engine.rows(_KINDS, ["workload_kinds"]))
    rows = engine.dicts("SELECT * FROM runs ORDER BY start_time NULLS LAST, run_id")
    ids = [str(r["run_id"]) for r in rows]
    # What launched the work of a GPU-only block is in its full block.
    own = [held[i] - (_LAUNCHING if r["profiler"] == "gpu" else set()) for i, r in zip(ids, rows, strict=True)]
    summaries = engine.query(find("summary")).dicts() if len(ids) <= _FEW else []
    figures = {r["run_id"]: "; ".join(map(_in_words, measures(r))) for r in summaries}
    return [
        Run(i, r, steps.get(i, r["steps"]), h, kinds.get(i), figures.get(i, ""), costs.get(i))
        for i, r, h in zip(ids, rows, own, strict=True)
    ]


def _in_words(measure: Measure) -> str:
    shares = ", ".join(f"{name} {percent(share)}" for name, share in measure.parts)
    return f"{measure.name} {measure.text} ({shares or measure.detail})"


def lines(info: Info, paths: Sequence[Path], width: int) -> Iterator[str]:
    """Return the info as text, in lines of at most this width in terminal cells."""
    if len(info.runs) <= _FEW:
        for run in info.runs:
            yield f"run {_shown(run.run_id)}"
            for label, text in _description(run):
                yield from _indented(label, text, width)
    else:
        yield from _table(info.runs, width)
    yield ""
    yield f"{_of_all(info)} queries can be answered:"
    for group, names in _by_group(info).items():
        yield from _indented(group, ", ".join(names), width)
    if info.empty:
        yield _EMPTY
        for name, condition in _conditions(info):
            yield from _indented("", f"{name}: {condition}", width)
    if info.unanswered:
        yield _UNANSWERED
        for queries, data in _missing_data(info):
            yield from _indented("", f"{queries}: {data}", width)
    yield ""
    yield "next:"
    # Not wrapped, so that they can be copied.
    yield from (f"  {command}" for command in commands(info, paths))


def _of_all(info: Info) -> str:
    return f"{len(info.answered)} of {len(info.answered) + len(info.empty) + len(info.unanswered)}"


def _by_group(info: Info) -> dict[str, list[str]]:
    """Names of the queries that can be answered, by group."""
    groups: dict[str, list[str]] = {}
    for query in info.answered:
        groups.setdefault(query.group, []).append(query.name)
    return groups


def _conditions(info: Info) -> list[tuple[str, str]]:
    """Names of queries without rows, by the condition that does not hold."""
    names: dict[str, list[str]] = {}
    for query in info.empty:
        names.setdefault(query.rows_if, []).append(query.name)
    return [(", ".join(queries), condition) for condition, queries in names.items()]


def _missing_data(info: Info) -> list[tuple[str, str]]:
    """Names of queries that cannot be answered, by the data that they need, with how to record it."""
    from analyze.query.data_needs import DATA_KINDS

    names: dict[Needs, list[str]] = {}
    for query, lacking in info.unanswered:
        names.setdefault(lacking, []).append(query.name)
    return [
        (", ".join(queries), f"{needs.words} ({'; '.join(DATA_KINDS[name].recorded for name in needs.names)})")
        for needs, queries in names.items()
    ]


def commands(info: Info, paths: Sequence[Path]) -> list[str]:
    """Return the commands to run next."""
    where = command(map(as_given, paths))
    can = {q.name for q in info.answered}
    first = [name for name in _FIRST if name in can][:3] or ["health"]
    advice = [f"analyze advise {where}"] if any(map(_advisable, info.runs)) else []
    return [*advice, *(f"analyze query {name} {where}" for name in first)]


def _advisable(run: Run) -> bool:
    """Return whether `analyze advise` has something to look at. Logs of nvprof have no durations of single kernels."""
    kinds = run.kinds or ""
    return (
        "GPU work" in run.held or "CPU only" in kinds or ("counters only" in kinds and run.columns["profiler"] == "ncu")
    )


def _description(run: Run) -> Iterator[tuple[str, str]]:
    from analyze.query.data_needs import DATA_KINDS

    c = run.columns
    yield "read as", ", ".join(_read_as(run))
    if run.kinds:
        yield "workload", run.kinds
    if run.figures:
        yield "figures", run.figures
    if run.cost:
        yield "overhead", run.cost
    yield "has", ", ".join(name for name in DATA_KINDS if name in run.held) or "nothing that a query needs"
    lacking = [name for name, h in DATA_KINDS.items() if name not in run.held and not h.optional]
    if lacking:
        yield "lacks", ", ".join(lacking)
    capability = f"compute capability {c['compute_capability']}" if c["compute_capability"] else ""
    yield "GPU", ", ".join(filter(None, [c["gpu_name"], capability])) or "not known"
    batch = f"batch {c['batch_size']}" if c["batch_size"] else ""
    gpus = _count(c["gpus"], "GPU") if c["gpus"] is not None else ""
    parallelism = c["parallelism"] if c["parallelism"] != "none" else ""
    if model := ", ".join(filter(None, [c["model"], batch, gpus, parallelism, c["precision"]])):
        yield "model", model
    if c["command"]:
        yield "command", c["command"]
    versions = [f"{name} {c[key]}" for name, key in _VERSIONS if c[key]]
    if versions:
        yield "software", ", ".join(versions)
    if c["status"] == "failed":
        yield "failed", c["reason"] or "no reason recorded"
    for warning in (c["warnings"] or "").splitlines():
        yield "warning", warning


def _read_as(run: Run) -> list[str]:
    """How a run was read: its profiler, ranks and steps, and which options of torch.profiler were on."""
    c = run.columns
    of = f" of {c['world_size']}" if c["world_size"] else ""
    writer = _WRITER.search(c["warnings"] or "")
    read_as = f"a Chrome trace of {writer[1]}" if writer else _PROFILERS.get(c["profiler"], "no profiler")
    said = [read_as, f"{_count(c['ranks'], 'rank')}{of}"]
    if run.steps is not None:
        said.append(_count(run.steps, "step"))
    if c["profiler"] == "torch" and not writer:
        said += [f"{word} {'yes' if name in run.held else 'no'}" for word, name in _OPTIONS]
    return said


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


_COLUMNS = (
    ResultColumn("run_id", "id", "the run"),
    ResultColumn("profiler", "text", "the profiler"),
    ResultColumn("ranks", "text", "ranks found, and in the job"),
    ResultColumn("steps", "count", "training steps"),
    ResultColumn("model", "text", "model"),
    ResultColumn("batch", "index", "images per step"),
    ResultColumn("precision", "text", "precision"),
    ResultColumn("GPU", "text", "GPU"),
    ResultColumn("warnings", "count", "number of warnings"),
)


def _rows(runs: Sequence[Run]) -> list[tuple[Any, ...]]:
    """A row of _COLUMNS for each run."""
    rows = []
    for run in runs:
        c = run.columns
        ranks = f"{c['ranks']} of {c['world_size']}" if c["world_size"] else str(c["ranks"])
        warnings = len((c["warnings"] or "").splitlines())
        known = (c["model"], c["batch_size"], c["precision"], c["gpu_name"])
        rows.append((run.run_id, c["profiler"], ranks, run.steps, *known, warnings))
    return rows


def _table(runs: Sequence[Run], width: int) -> Iterator[str]:
    from analyze.render.layout import table_lines

    yield f"{len(runs)} runs"
    yield from table_lines(_COLUMNS, _rows(runs), (), width)


def _run_elements(runs: Sequence[Run]) -> Iterator[Element]:
    if len(runs) <= _FEW:
        for run in runs:
            yield inline.element("p", "run ", inline.named("b", run.run_id))
            yield inline.pairs(_description(run))
        return
    rows = _rows([runs[at] for at in inline.shown(len(runs))])
    yield inline.element("p", f"{len(runs)} runs" if len(runs) == len(rows) else inline.counted(len(runs)))
    yield inline.table(_COLUMNS, list(zip(*rows, strict=True)), len(runs))


def _shown(text: str) -> str:
    from analyze.render.texts import visible

    return visible(text)


def _indented(label: str, text: str, width: int) -> Iterator[str]:
    from analyze.render.texts import wrapped

    side = f"  {label:<10}" if label else "  "
    first, *more = wrapped(_shown(text), max(width - 12, 20))
    yield f"{side}{first}"
    yield from (f"{' ' * max(len(side), 4)}{line}" for line in more)
