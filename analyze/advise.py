"""Findings: what costs a run time, ranked by the time that fixing it could save, each with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TextIO

from analyze.errors import InputError
from analyze.finding_files import Finding, findings
from analyze.query.data_needs import lacks
from analyze.query.literals import of_run, text_literal
from analyze.query.query_declaration import ResultColumn
from analyze.shell import in_shell

if TYPE_CHECKING:
    from analyze.query.engine import Engine
    from analyze.query.result import Result


class WithoutTimesError(InputError):
    """The recordings have no times, but something else: the text names the query that answers."""


_PLACES_USE = ("steps",)
_PLACES = """
WITH asked(n, run_id, rank, device, start_ns, end_ns, late) AS (VALUES {stretches}),
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
overlapping AS MATERIALIZED (
    SELECT
        n, late, launch, w.correlation_id, w.op_id, w.start_ns, a.end_ns - a.start_ns AS length_ns,
        w.start_ns = a.start_ns AND w.start_ns + w.dur_ns = a.end_ns AS same,
        greatest(least(w.start_ns + w.dur_ns, a.end_ns) - greatest(w.start_ns, a.start_ns), 0) AS ns
    FROM work w JOIN asked a
        ON w.run_id = a.run_id AND w.rank = a.rank AND w.device IS NOT DISTINCT FROM a.device
        AND w.start_ns + w.dur_ns > a.start_ns
    WHERE a.n NOT IN (SELECT n FROM called)
),
running AS (
    -- Else the work that is the interval, or that runs for most of it.
    SELECT n, arg_min(launch, (NOT same, -ns, start_ns, correlation_id, op_id)) AS launch
    FROM overlapping
    WHERE ns > 0
    GROUP BY n
    HAVING 2 * sum(ns) >= any_value(length_ns)
),
on_cpu AS (
    -- Else the innermost operator, range or CUDA call that the CPU is in for most of it.
    SELECT n, {'operator': arg_min(t.name, (t.dur_ns, t.name)), 'tid': arg_min(t.tid, (t.dur_ns, t.name)),
        'call_ns': arg_min(t.start_ns, (t.dur_ns, t.name))} AS launch
    FROM asked a JOIN call_tree t
        ON t.run_id = a.run_id AND t.rank = a.rank AND t.start_ns < a.end_ns AND t.start_ns + t.dur_ns > a.start_ns
    WHERE t.kind IN ('op', 'range', 'call') AND t.name <> 'ProfilerStep*'
        AND 2 * (least(t.start_ns + t.dur_ns, a.end_ns) - greatest(t.start_ns, a.start_ns)) >= a.end_ns - a.start_ns
        AND n NOT IN (SELECT n FROM called UNION ALL SELECT n FROM running)
    GROUP BY n
),
next AS (
    -- Else the next work on the GPU. Of a late rank that is only what the others wait for.
    SELECT n, arg_min(launch, (-ns, start_ns, correlation_id, op_id)) AS launch
    FROM overlapping
    WHERE NOT late AND n NOT IN (SELECT n FROM running UNION ALL SELECT n FROM on_cpu)
    GROUP BY n
),
launched AS (
    SELECT n, unnest(launch) FROM called
    UNION ALL
    SELECT n, unnest(launch) FROM running
    UNION ALL
    SELECT n, unnest(launch) FROM on_cpu
    UNION ALL
    SELECT n, unnest(launch) FROM next
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

_KINDS_OF_RUNS = """
SELECT
    run_id::VARCHAR, any_value(coalesce(workload_id, run_id::VARCHAR)),
    coalesce(list(k.kind ORDER BY turn) FILTER (k.kind IS NOT NULL), [])
FROM runs LEFT JOIN workload_kinds k USING (run_id)
GROUP BY run_id
"""

_INSTEAD = {
    "flight_groups": "the query hang says which collective hangs",
    "allocator_blocks": "the query memory-live says who holds memory",
    "compilations": "the query compiles says what was compiled",
    "nccl_records": "the query nccl-log says how fast collectives are",
    "gpu_summary": "the query kernel-share has the sums of kernels",
}
"""What answers for recordings without times, by table."""

COLUMNS = (
    ResultColumn("run_id", "id", "the run"),
    ResultColumn("finding", "text", "name of the finding"),
    ResultColumn("title", "text", "what is wrong"),
    ResultColumn("saving_ns", "ns", "upper bound of the time saved by fixing it, per GPU"),
    ResultColumn("recorded_saving_ns", "ns", "the same in the recording: with the idle time that the profiler adds"),
    ResultColumn("saving_pct", "%", "share of the span of the GPUs"),
    ResultColumn("confidence", "text", "measured, estimated, or artifact?: the recording may cause most of it"),
    ResultColumn("overlaps", "text", "findings of the run whose savings include time of this one; empty for none"),
    ResultColumn("evidence", "text", "the numbers that support it"),
    ResultColumn("query", "text", "the query that shows more"),
    ResultColumn("try", "text", "what to try in this kind of workload"),
    ResultColumn("workload", "text", "kinds of workload of the run (query workload); empty where nothing shows them"),
    ResultColumn("rank", "index", "rank of the longest interval"),
    ResultColumn("device", "index", "GPU of that interval"),
    ResultColumn("step", "index", "training step in which it begins; empty for none"),
    ResultColumn(
        "operator",
        "text",
        "operator that launched the work there; in idle time, what the CPU is in, else the operator of the next work",
    ),
    ResultColumn("module", "text", "innermost nn.Module of that launch; needs Python stacks"),
    ResultColumn(
        "source", "text", "source line with most of the time (needs Python stacks), or launch and kernel of counters"
    ),
    ResultColumn("start_ns", "ns", "start of that interval, on the clock of the recording"),
    ResultColumn("end_ns", "ns", "end of that interval"),
)


class Advice(NamedTuple):
    """A finding that is true of a run. Savings are per GPU, in ns and in % of the mean span of its GPUs."""

    run_id: str
    finding: str
    title: str
    saving_ns: int
    recorded_saving_ns: int
    saving_pct: float
    confidence: str
    """measured, estimated or artifact?."""
    overlaps: str | None
    evidence: str
    query: str
    attempt: str
    workload: str | None
    """Kinds of workload of the run."""
    rank: int
    device: int | None
    step: int | None
    operator: str | None
    module: str | None
    source: str | None
    """The line of the program that most of its time comes from, or the launch and kernel of counters."""
    start_ns: int | None
    end_ns: int | None
    """The longest stretch that it is about, on the clock of the recording, as in the tables."""

    @property
    def place(self) -> str:
        """Where it is, in words: the longest interval, and the source line."""
        gpu = None if self.device is None else f"GPU {self.device}"
        step = None if self.step is None else f"step {self.step}"
        module = self.module and f"in {self.module}"
        launched = " ".join(filter(None, (self.operator, module)))
        return ", ".join(filter(None, (f"rank {self.rank}", gpu, step, launched, self.source)))


def advise(engine: Engine, min_pct: float = 1.0) -> list[Advice]:
    """What costs each run time, run by run: causes first, the largest saving first, then findings that overlap them.

    `min_pct`: findings that could save less than this % of the span are left out. Savings are upper bounds: none is
    more than the span, and none of idle time is more than the idle time without the profiler. Findings with `@pass gpu`
    are of the GPU-only block, where there is one: their run is another one. Raises InputError, WithoutTimesError.
    """
    if not min_pct >= 0:
        raise InputError(f"--min-pct {min_pct}: must be a percentage, 0 or more")
    if not engine.run_ids:
        raise InputError("advise: no run matched --where, --profiler or --block")
    all_findings = findings()
    of_time = [finding for finding in all_findings if finding.query.prefer == "gpu"]
    others = [finding for finding in all_findings if finding.query.prefer != "gpu"]
    if engine.of_gpu_blocks:
        parts = [(engine.of_gpu_blocks, of_time), (engine, others)]
    else:
        parts = [(engine, [*of_time, *others])]
    kinds = _kinds([one for one, _ in parts])
    advice = [a for one, wanted in parts for a in _advice(one, wanted, min_pct, kinds)]
    return sorted(advice, key=lambda a: a.run_id)


def _kinds(engines: Sequence[Engine]) -> dict[str, list[str]]:
    """Return the kinds of workload by run. All blocks of a program are of the same kinds."""
    found = [row for engine in engines for row in engine.rows(_KINDS_OF_RUNS, ["workload_kinds"])]
    programs: dict[str, dict[str, None]] = {}
    for _, program, kinds in found:
        programs.setdefault(program, {}).update(dict.fromkeys(kinds))
    return {run_id: list(programs[program]) for run_id, program, _ in found}


def blocks_note(engine: Engine) -> str:
    """Return which passes or blocks were used where each figure is taken from its own block, in a sentence."""
    if not engine.of_gpu_blocks:
        return engine.note
    others = ", ".join(sorted(set(engine.of_gpu_blocks.run_ids) - set(engine.run_ids)))
    return f"times are those of the GPU-only block ({others}), operators and shapes of the full block (--block chooses)"


def _advice(
    engine: Engine, wanted: Sequence[Finding], min_pct: float, kinds: Mapping[str, Sequence[str]]
) -> list[Advice]:
    """Return the findings that are true of the runs of an engine, run by run, in order."""
    timed = engine.rows("SELECT run_id, span_ns, undisturbed_idle_ns FROM run_spans WHERE span_ns > 0", ["findings"])
    spans = {run_id: span_ns for run_id, span_ns, _ in timed}
    idle = {run_id: idle_ns for run_id, _, idle_ns in timed if idle_ns is not None}
    slowed = {run_id for (run_id,) in engine.rows("SELECT run_id FROM slowed_runs", ["findings"])}
    if not spans:
        instead = "".join(f"; {hint}" for table, hint in _INSTEAD.items() if table in engine.tables)
        error = WithoutTimesError if instead else InputError
        raise error(f"advise: no run has GPU work, operators or counters of kernels{instead}")
    found: dict[str, list[_Found]] = {}
    held: dict[str, bool] = {}
    for finding in wanted:
        if lacks(engine, finding.query, {}, held):
            continue
        names = [c.name for c in finding.query.columns]
        for row in (dict(zip(names, values, strict=True)) for values in engine.query(finding.query).rows()):
            run_id = row["run_id"]
            # What a finding's SQL adds up is time of the span already; this holds for the next one, too.
            recorded_ns = min(round(row["saving_ns"]), int(spans.get(run_id, 0)))
            bound_ns = int(idle.get(run_id, recorded_ns)) if finding.of == "idle time" else recorded_ns
            saving_ns = min(recorded_ns, bound_ns)
            if saving_ns <= 0 or 100.0 * saving_ns / spans[run_id] < min_pct:
                continue
            sure = finding.sure
            if sure == "host time":
                sure = "artifact?" if run_id in slowed else "measured"
            attempt = finding.remedy(row.get("situation"), kinds.get(run_id, ()))
            stretch = _Stretch(
                run_id, row["rank"], row["device"], row["start_ns"], row["end_ns"], finding.of == "late ranks"
            )
            found.setdefault(run_id, []).append(
                _Found(finding, saving_ns, recorded_ns, sure, row["evidence"], attempt, stretch, row["source"])
            )
    places = _places(engine, [f.stretch for of_run in found.values() for f in of_run])
    return [
        advice for run_id in sorted(found) for advice in _ranked(spans[run_id], found[run_id], places, kinds[run_id])
    ]


class _Stretch(NamedTuple):
    """A stretch of time of a GPU."""

    run_id: str
    rank: int
    device: int | None
    start_ns: int | None
    end_ns: int | None
    """None of both for a kernel with counters: it has no place in time."""
    late: bool
    """Whether others wait for the rank in it."""


class _Place(NamedTuple):
    """The step, operator and module of an interval; None if unknown."""

    step: int | None = None
    operator: str | None = None
    module: str | None = None


class _Found(NamedTuple):
    """A finding that is true of a run, with the longest stretch that it is about."""

    finding: Finding
    saving_ns: int
    recorded_saving_ns: int
    confidence: str
    evidence: str
    attempt: str
    stretch: _Stretch
    source: str | None


def _places(engine: Engine, stretches: Sequence[_Stretch]) -> dict[_Stretch, _Place]:
    """The step, operator and module of each stretch."""
    asked = [s for s in dict.fromkeys(stretches) if s.start_ns is not None]
    if not asked:
        return {}
    values = ", ".join(
        f"({n}, {text_literal(s.run_id)}::run_key, {s.rank}, "
        f"{'NULL' if s.device is None else s.device}::INTEGER, {s.start_ns}, {s.end_ns}, {s.late})"
        for n, s in enumerate(asked)
    )
    rows = engine.rows(_PLACES.replace("{stretches}", values), _PLACES_USE)
    return {asked[n]: _Place(*place) for n, *place in rows}


def _ranked(
    span_ns: float, found: Sequence[_Found], places: Mapping[_Stretch, _Place], kinds: Sequence[str]
) -> list[Advice]:
    """The findings of one run in order."""
    advice = []
    for f in found:
        overlaps = ", ".join(o.finding.name for o in found if o.finding.name in f.finding.overlaps) or None
        at, place = f.stretch, places.get(f.stretch, _Place())
        advice.append(
            Advice(
                at.run_id, f.finding.name, f.finding.title, f.saving_ns, f.recorded_saving_ns,
                100.0 * f.saving_ns / span_ns, f.confidence, overlaps, f.evidence, f.finding.see, f.attempt,
                ", ".join(kinds) or None, at.rank, at.device, place.step, place.operator, place.module, f.source,
                at.start_ns, at.end_ns,
            )
        )  # fmt: skip
    return sorted(advice, key=lambda a: (a.overlaps is not None, -a.saving_ns, a.finding))


def answer(advice: Sequence[Advice], note: str = "") -> Result:
    """The advice as the result of a query: a row for each, of the fields of `Advice`."""
    from analyze.query.result import row_result

    shown = row_result(COLUMNS, advice, "advise")
    shown.note = note
    return shown


UNSURE = {"estimated": ", estimated", "artifact?": ", perhaps an artifact of the recording"}
"""Text after a saving, by its confidence."""


def write_text(
    advice: Sequence[Advice], file: TextIO, paths: str = "PATH", chosen: bool = False, cautions: Sequence[str] = ()
) -> None:
    """Write the advice as text, after the data-quality checks that were not ok (`cautions`).

    `paths`: the recordings, as words of a command line. `chosen`: the runs are not all that are there, so commands name
    them.
    """
    file.writelines(f"{caution}\n" for caution in cautions)
    if cautions:
        file.write(f"more: analyze query health {paths}\n\n")
    several = chosen or len({a.run_id for a in advice}) > 1
    for number, (run_id, group) in enumerate(groupby(advice, key=lambda a: a.run_id)):
        findings_of_run = list(group)
        numbers = {a.finding: n for n, a in enumerate(findings_of_run, 1)}
        only = f" --where {in_shell(of_run(run_id))}" if several else ""
        file.write(f"{chr(10) if number else ''}{run_id}\n")
        if workload := findings_of_run[0].workload:
            file.write(f"workload: {workload}\n")
        for a in findings_of_run:
            saving = f"up to {a.saving_ns / 1e6:,.3f} ms ({a.saving_pct:.1f} %)"
            if a.recorded_saving_ns > a.saving_ns:
                saving += f", {a.recorded_saving_ns / 1e6:,.3f} ms with the profiler"
            saving += UNSURE.get(a.confidence, "")
            if a.overlaps:
                others = sorted(numbers[f] for f in a.overlaps.split(", "))
                saving += f", overlaps finding{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
            file.write(f"\n{numbers[a.finding]:3}. {a.title}: {saving}\n")
            file.write(f"     evidence: {a.evidence}\n")
            file.write(f"     where: {a.place}\n")
            file.write(f"     try: {a.attempt}\n")
            file.write(f"     more: analyze query {a.query} {paths}{only}\n")
            if a.start_ns is not None:
                file.write(f"     look: analyze trace {paths} --open --at {a.finding}{only}\n")
    if not advice:
        file.write("no findings\n")
