"""Findings: what costs a run time, ranked by the time that fixing it could save, each with its numbers.

A finding is a file in `analyze/advice/`, a query file without @column and @order lines. Its first line is the problem.
The lines `Saving:`, `See:` and `Try:` say how the saving is computed, which query shows more, and what to do. Its
SELECT returns a row for each run with the problem. Each ns belongs to one cause (SQL module `findings`); a finding
whose saving can include time of others names them in a line `Overlaps:`. A line `Of: idle time` says that the saving is
idle time of the GPU: the profiler adds to it, so the saving is at most the idle time without the profiler, if known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from analyze.errors import InputError
from analyze.query.data_needs import lacks
from analyze.query.literals import of_run, text_literal
from analyze.query.query_files import Query, ResultColumn, parse
from analyze.shell import in_shell

if TYPE_CHECKING:
    from analyze.query.engine import Engine
    from analyze.query.result import Result

FOLDER = Path(__file__).parent / "advice"
_MS = re.MULTILINE | re.DOTALL

_PLACES_USE = ("steps",)
_PLACES = """
WITH asked(n, run_id, rank, device, start_ns, end_ns) AS (VALUES {stretches}),
work AS NOT MATERIALIZED (
    SELECT
        run_id, rank, device, start_ns, dur_ns, call_start_ns, call_dur_ns, correlation_id, op_id,
        {'operator': CASE WHEN op_id > 0 THEN op_name END, 'tid': call_tid, 'call_ns': call_start_ns} AS launch
    FROM gpu_work
),
called AS MATERIALIZED (
    -- The interval is a launch call: the work that it launched.
    SELECT n, arg_min(launch, (w.correlation_id, w.op_id)) AS launch
    FROM asked a
    JOIN work w
        ON w.run_id = a.run_id AND w.rank = a.rank AND w.call_start_ns = a.start_ns
        AND w.call_start_ns + w.call_dur_ns = a.end_ns
    GROUP BY n
),
near AS (
    -- Else the work that runs for most of the interval, or the next work on the GPU.
    SELECT n, arg_min(launch, (
        CASE WHEN w.start_ns < a.end_ns
            THEN greatest(w.start_ns, a.start_ns) - least(w.start_ns + w.dur_ns, a.end_ns) ELSE 0 END, w.start_ns,
        w.correlation_id, w.op_id
    )) AS launch
    FROM work w JOIN asked a
        ON w.run_id = a.run_id AND w.rank = a.rank AND w.device IS NOT DISTINCT FROM a.device
        AND w.start_ns + w.dur_ns > a.start_ns
    WHERE a.n NOT IN (SELECT n FROM called)
    GROUP BY n
),
launched AS (
    SELECT n, unnest(launch) FROM called UNION ALL SELECT n, unnest(launch) FROM near
),
modules AS (
    SELECT l.n, arg_max(r.name, (r.start_ns, -r.dur_ns, r.name)).replace('nn.Module: ', '') AS module
    FROM launched l
    JOIN asked a USING (n)
    JOIN ranges r ON r.run_id = a.run_id AND r.rank = a.rank AND r.tid = l.tid
        AND r.start_ns <= l.call_ns AND r.start_ns + r.dur_ns > l.call_ns
    WHERE r.origin = 'python_function' AND starts_with(r.name, 'nn.Module: ')
    GROUP BY l.n
),
steps AS (
    SELECT a.n, any_value(s.step) AS step
    FROM asked a JOIN step_windows s
        ON s.run_id = a.run_id AND s.rank = a.rank AND s.start_ns <= a.start_ns AND s.end_ns > a.start_ns
    GROUP BY a.n
)
SELECT n, step, operator, module
FROM asked LEFT JOIN steps USING (n) LEFT JOIN launched USING (n) LEFT JOIN modules USING (n)
"""
"""The training step, operator and module of intervals of GPU time."""

_COLUMNS = (
    ResultColumn("run_id", "id", "The run."),
    ResultColumn("saving_ns", "ns", "Upper bound of the time saved, per GPU."),
    ResultColumn("evidence", "text", "Numbers that support the finding."),
    ResultColumn("rank", "index", "Rank of the longest interval."),
    ResultColumn("device", "index", "GPU of that interval."),
    ResultColumn("start_ns", "ns", "Its start."),
    ResultColumn("end_ns", "ns", "Its end."),
    ResultColumn("source", "text", "Source line with most of the time; NULL if not known."),
)
"""Columns of the SELECT of every finding; a row is a run."""

COLUMNS = (
    ResultColumn("run_id", "id", "the run"),
    ResultColumn("finding", "text", "name of the finding"),
    ResultColumn("title", "text", "what is wrong"),
    ResultColumn("saving_ns", "ns", "upper bound of the time saved by fixing it, per GPU"),
    ResultColumn("recorded_saving_ns", "ns", "the same in the recording: with the idle time that the profiler adds"),
    ResultColumn("saving_pct", "%", "share of the span of the GPUs"),
    ResultColumn("overlaps", "text", "findings of the run whose savings include time of this one; empty for none"),
    ResultColumn("evidence", "text", "the numbers that support it"),
    ResultColumn("query", "text", "the query that shows more"),
    ResultColumn("try", "text", "what to try"),
    ResultColumn("rank", "index", "rank of the longest interval"),
    ResultColumn("device", "index", "GPU of that interval"),
    ResultColumn("step", "index", "training step in which it begins; empty for none"),
    ResultColumn("operator", "text", "operator that launched the work there; for idle time, the work after it"),
    ResultColumn("module", "text", "innermost nn.Module of that launch; needs Python stacks"),
    ResultColumn("source", "text", "source line with most of the time; needs Python stacks"),
    ResultColumn("start_ns", "ns", "start of that interval, on the clock of the recording"),
    ResultColumn("end_ns", "ns", "end of that interval"),
)


class Finding(NamedTuple):
    """A finding as its file declares it."""

    name: str
    title: str
    saving: str
    """How the saving is computed."""
    see: str
    attempt: str
    overlaps: frozenset[str]
    """Findings whose savings can hold the same time."""
    of_idle_time: bool
    """Whether the saving is idle time of the GPU."""
    query: Query


class Advice(NamedTuple):
    """A finding that is true of a run. Savings are per GPU, in ns and in % of the mean span of its GPUs."""

    run_id: str
    finding: str
    title: str
    saving_ns: int
    recorded_saving_ns: int
    saving_pct: float
    overlaps: str | None
    evidence: str
    query: str
    attempt: str
    rank: int
    device: int | None
    step: int | None
    operator: str | None
    module: str | None
    source: str | None
    """The line of the program that most of its time comes from."""
    start_ns: int
    end_ns: int
    """The longest stretch that it is about, on the clock of the recording, as in the tables."""

    @property
    def place(self) -> str:
        """Where it is, in words: the longest interval, and the source line."""
        gpu = None if self.device is None else f"GPU {self.device}"
        step = None if self.step is None else f"step {self.step}"
        module = self.module and f"in {self.module}"
        launched = " ".join(filter(None, (self.operator, module)))
        return ", ".join(filter(None, (f"rank {self.rank}", gpu, step, launched, self.source)))


def findings() -> list[Finding]:
    """All findings by name. Raises InputError for a file that is not of the form."""
    return [_finding(path) for path in sorted(FOLDER.glob("*.sql"))]


def _finding(path: Path) -> Finding:
    query = parse(path, _COLUMNS, "run_id")
    found = re.findall(
        r"^(Saving|Overlaps|Of|See|Try): (.*?)(?=^(?:Saving|Overlaps|Of|See|Try): |\Z)", query.description, _MS
    )
    parts = {"Overlaps": "", "Of": ""} | {key: " ".join(text.split()) for key, text in found}
    if set(parts) != {"Saving", "Overlaps", "Of", "See", "Try"} or parts["Of"] not in ("", "idle time"):
        raise InputError(f"{path}: a finding needs the lines Saving:, See: and Try:")
    overlaps = frozenset(name.strip() for name in parts["Overlaps"].split(",") if name.strip())
    return Finding(
        path.stem, query.question, parts["Saving"], parts["See"], parts["Try"], overlaps, bool(parts["Of"]), query
    )


def advise(engine: Engine, min_pct: float = 1.0) -> list[Advice]:
    """What costs each run time, run by run: causes first, the largest saving first, then findings that overlap them.

    `min_pct`: findings that could save less than so many % of the span are left out. Savings are upper bounds: none is
    more than the span, and none of idle time is more than the idle time without the profiler. Findings with `@pass gpu`
    are of the GPU-only block, where there is one: their run is another one. Raises InputError.
    """
    if not min_pct >= 0:
        raise InputError(f"--min-pct {min_pct}: must be a percentage, 0 or more")
    if not engine.run_ids:
        raise InputError("advise: no run that --where selects")
    of_time = [finding for finding in findings() if finding.query.prefer == "gpu"]
    others = [finding for finding in findings() if finding.query.prefer != "gpu"]
    if engine.of_gpu_blocks:
        parts = [(engine.of_gpu_blocks, of_time), (engine, others)]
    else:
        parts = [(engine, [*of_time, *others])]
    advice = [a for one, wanted in parts for a in _advice(one, wanted, min_pct)]
    return sorted(advice, key=lambda a: a.run_id)


def blocks_note(engine: Engine) -> str:
    """Return which passes or blocks were used where each figure is taken from its own block, in a sentence."""
    if not engine.of_gpu_blocks:
        return engine.note
    others = ", ".join(sorted(set(engine.of_gpu_blocks.run_ids) - set(engine.run_ids)))
    return f"time is that of the GPU-only block ({others}), all else of the full one (--block chooses)"


def _advice(engine: Engine, wanted: Sequence[Finding], min_pct: float) -> list[Advice]:
    """Return the findings that are true of the runs of an engine, run by run, in order."""
    timed = engine.rows("SELECT run_id, span_ns, undisturbed_idle_ns FROM run_gpus WHERE span_ns > 0", ["findings"])
    spans = {run_id: span_ns for run_id, span_ns, _ in timed}
    idle = {run_id: idle_ns for run_id, _, idle_ns in timed if idle_ns is not None}
    if not spans:
        raise InputError("advise: no run has timed GPU work")
    found: dict[str, list[_Found]] = {}
    held: dict[str, bool] = {}
    for finding in wanted:
        if lacks(engine, finding.query, {}, held):
            continue
        for run_id, saving, evidence, *at, source in engine.query(finding.query).rows():
            # What a finding's SQL adds up is time of the span already; this holds for the next one, too.
            recorded_ns = min(round(saving), int(spans.get(run_id, 0)))
            saving_ns = min(recorded_ns, int(idle.get(run_id, recorded_ns))) if finding.of_idle_time else recorded_ns
            if saving_ns > 0 and 100.0 * saving_ns / spans[run_id] >= min_pct:
                stretch = _Stretch(run_id, *at)
                found.setdefault(run_id, []).append(_Found(finding, saving_ns, recorded_ns, evidence, stretch, source))
    places = _places(engine, [f.stretch for of_run in found.values() for f in of_run])
    return [advice for run_id in sorted(found) for advice in _ranked(spans[run_id], found[run_id], places)]


class _Stretch(NamedTuple):
    """A stretch of time of a GPU."""

    run_id: str
    rank: int
    device: int | None
    start_ns: int
    end_ns: int


class _Place(NamedTuple):
    """What a stretch belongs to; None for what is not known."""

    step: int | None = None
    operator: str | None = None
    module: str | None = None


class _Found(NamedTuple):
    """A finding that is true of a run, with the longest stretch that it is about."""

    finding: Finding
    saving_ns: int
    recorded_saving_ns: int
    evidence: str
    stretch: _Stretch
    source: str | None


def _places(engine: Engine, stretches: Sequence[_Stretch]) -> dict[_Stretch, _Place]:
    """The step, operator and module of each stretch."""
    if not stretches:
        return {}
    asked = list(dict.fromkeys(stretches))
    values = ", ".join(
        f"({n}, {text_literal(s.run_id)}::run_key, {s.rank}, "
        f"{'NULL' if s.device is None else s.device}::INTEGER, {s.start_ns}, {s.end_ns})"
        for n, s in enumerate(asked)
    )
    rows = engine.rows(_PLACES.replace("{stretches}", values), _PLACES_USE)
    return {asked[n]: _Place(*place) for n, *place in rows}


def _ranked(span_ns: float, found: Sequence[_Found], places: Mapping[_Stretch, _Place]) -> list[Advice]:
    """The findings of one run in order."""
    advice = []
    for f in found:
        overlaps = ", ".join(o.finding.name for o in found if o.finding.name in f.finding.overlaps) or None
        at, place = f.stretch, places[f.stretch]
        advice.append(
            Advice(
                at.run_id, f.finding.name, f.finding.title, f.saving_ns, f.recorded_saving_ns,
                100.0 * f.saving_ns / span_ns, overlaps, f.evidence, f.finding.see, f.finding.attempt, at.rank,
                at.device, place.step, place.operator, place.module, f.source, at.start_ns, at.end_ns,
            )
        )  # fmt: skip
    return sorted(advice, key=lambda a: (a.overlaps is not None, -a.saving_ns, a.finding))


def answer(advice: Sequence[Advice], note: str = "") -> Result:
    """The advice as the result of a query: a row for each, of the fields of `Advice`."""
    from analyze.query.result import row_result

    shown = row_result(COLUMNS, advice, "advise")
    shown.note = note
    return shown


def write_text(advice: Sequence[Advice], file: TextIO, chosen: bool = False, cautions: Sequence[str] = ()) -> None:
    """Write the advice as text, after the data-quality checks that were not ok (`cautions`).

    `chosen`: the runs are not all that are there, so commands name them.
    """
    file.writelines(f"{caution}\n" for caution in cautions)
    if cautions:
        file.write("more: analyze query health\n\n")
    several = chosen or len({a.run_id for a in advice}) > 1
    for number, (run_id, group) in enumerate(groupby(advice, key=lambda a: a.run_id)):
        findings_of_run = list(group)
        numbers = {a.finding: n for n, a in enumerate(findings_of_run, 1)}
        only = f" --where {in_shell(of_run(run_id))}" if several else ""
        file.write(f"{chr(10) if number else ''}{run_id}\n")
        for a in findings_of_run:
            saving = f"up to {a.saving_ns / 1e6:,.3f} ms ({a.saving_pct:.1f} %)"
            if a.recorded_saving_ns > a.saving_ns:
                saving += f", {a.recorded_saving_ns / 1e6:,.3f} ms with the profiler"
            if a.overlaps:
                saving += f", overlaps {', '.join(str(n) for n in sorted(numbers[f] for f in a.overlaps.split(', ')))}"
            file.write(f"\n{numbers[a.finding]:3}. {a.title}: {saving}\n")
            file.write(f"     evidence: {a.evidence} (analyze query {a.query})\n")
            file.write(f"     where: {a.place}\n")
            file.write(f"     try: {a.attempt}\n")
            file.write(f"     look: analyze trace PATH --open --at {a.finding}{only}\n")
    if not advice:
        file.write("no findings\n")
