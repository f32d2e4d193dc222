"""Compare what queries need (@needs) with what recordings have: which can be answered, and why one has no rows.

@needs uses the names of DATA_KINDS. "and" and commas: all are needed. "or": one is enough.
Text in parentheses, after a semicolon or in other words is for people.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from analyze.errors import InputError
from analyze.query.modules import defining
from analyze.query.sql_checks import sentence
from analyze.stored_tables import TABLES

if TYPE_CHECKING:
    from analyze.query.engine import Engine
    from analyze.query.query_declaration import Query


NO_RUN = "no run matched --where, --profiler or --block"
"""Why an answer has no rows if no run is selected."""


class DataKind(NamedTuple):
    """A kind of data that a recording may hold.

    `pattern`: regex of its names in @needs. `sources`: FROM clauses; a run holds it if one of them has rows of the run.
    What launched the work of a GPU-only block is in its full block (`full_cpu_ops`).
    `recorded`: how to record it; empty if there is nothing to advise. `optional`: not listed as lacking, since only
    some programs or profilers have it.
    """

    name: str
    pattern: str
    sources: tuple[str, ...]
    recorded: str
    optional: bool = False


_FLOPS = "regexp_matches(metric, '^flop_count|_op_[fdh](add|mul|fma)_|_path_tensor_|_hmma')"
_COMPILED = (
    "(starts_with(name, 'Torch-Compiled Region') OR starts_with(name, 'CompiledFunction')"
    " OR starts_with(name, '## Call CompiledFxGraph') OR contains(name, 'dynamo_timed'))"
)
_TRACED = "a profiler that traces CUDA"
_COMMUNICATION = "kernel_names WHERE family = 'communication'"

DATA_KINDS = {
    h.name: h
    for h in (
        # A name that contains another one comes first.
        DataKind("sums of kernels", r"sums of kernels", ("gpu_summary",), "", optional=True),
        DataKind(
            "sums of communication kernels",
            r"sums of communication kernels",
            (f"{_COMMUNICATION} AND run_id IN (SELECT run_id FROM gpu_summary)",),
            "",
            optional=True,
        ),
        DataKind("sums of copies", r"sums of memcpys", ("gpu_summary WHERE name ILIKE '%memcpy%'",), "", optional=True),
        DataKind("sums of CUDA calls", r"sums of CUDA API calls", ("api_summary",), "", optional=True),
        DataKind(
            "communication kernels",
            r"(?:kernels of )?NCCL collectives|communication kernels",
            (f"{_COMMUNICATION} AND run_id IN (SELECT run_id FROM kernels)", "kernels WHERE collective IS NOT NULL"),
            "more than one GPU",
        ),
        DataKind(
            "sends and receives",
            r"sends and receives",
            # all_to_all runs as a kernel of that name: what NCCL said of the kernels comes first.
            (
                "kernel_names WHERE collective = 'send_recv'"
                " AND run_id NOT IN (SELECT run_id FROM kernels WHERE collective IS NOT NULL)",
                "kernels WHERE regexp_matches(lower(collective), 'send|recv')",
            ),
            "a program with stages that send to each other",
            optional=True,
        ),
        DataKind(
            "sizes of all_to_alls",
            r"sizes of all_to_alls",
            ("kernels WHERE regexp_matches(lower(collective), 'all_?to_?all')",),
            "torch.profiler, of a program that calls all_to_all",
            optional=True,
        ),
        DataKind(
            "replays of CUDA graphs",
            r"replays of CUDA graphs",
            ("cuda_calls WHERE contains(name, 'GraphLaunch')",),
            "a program that replays CUDA graphs",
            optional=True,
        ),
        DataKind(
            "compiled code",
            r"compiled code",
            (f"cpu_ops WHERE {_COMPILED}", f"ranges WHERE origin <> 'gpu_annotation' AND {_COMPILED}"),
            "torch.profiler, of a program that torch.compile compiled",
            optional=True,
        ),
        DataKind(
            "a backward pass",
            r"a backward pass",
            ("cpu_ops WHERE starts_with(name, 'autograd::engine')",),
            "torch.profiler, of training",
            optional=True,
        ),
        DataKind("kernels", r"kernels", ("kernels",), _TRACED),
        DataKind("GPU work", r"work on GPUs|GPU work", ("kernels", "memcpys", "memsets"), _TRACED),
        DataKind("copies", r"memcpys", ("memcpys",), _TRACED),
        DataKind("CUDA calls", r"CUDA (?:API )?calls|calls that launch\w*", ("cuda_calls",), _TRACED),
        DataKind(
            "operators with input shapes",
            r"operators with input shapes",
            ("cpu_ops WHERE input_dims IS NOT NULL", "full_cpu_ops WHERE input_dims IS NOT NULL"),
            "torch.profiler with record_shapes=True",
        ),
        DataKind(
            "operators",
            r"operators|(?:a recording of )?torch\.profiler(?: recording)?",
            ("cpu_ops", "full_cpu_ops"),
            "torch.profiler with ProfilerActivity.CPU",
        ),
        DataKind(
            "Python stacks",
            r"Python stacks",
            ("ranges WHERE origin = 'python_function'",),
            "torch.profiler with with_stack=True",
        ),
        DataKind(
            "allocator events",
            r"allocator events",
            ("memory_events",),
            "torch.profiler with profile_memory=True, or nsys with --cuda-memory-usage=true",
        ),
        DataKind(
            "memory snapshots",
            r"a memory snapshot",
            ("allocator_blocks",),
            "collect run --memory-history, or torch.cuda.memory._dump_snapshot()",
            optional=True,
        ),
        DataKind(
            "dumps of the flight recorder",
            r"dumps of the flight recorder",
            ("flight_records", "flight_groups"),
            "TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_BUFFER_SIZE=2000",
            optional=True,
        ),
        DataKind(
            "logs of NCCL Inspector",
            r"a log of NCCL Inspector",
            ("nccl_records",),
            "NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1 "
            "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=500",
            optional=True,
        ),
        DataKind(
            "logs of torch.compile",
            r"a log of torch\.compile",
            ("compilations",),
            "collect run of a compiled program, or TORCH_TRACE=FOLDER",
            optional=True,
        ),
        DataKind(
            "states of CPU threads",
            r"states of CPU threads",
            ("os_calls", "thread_switches"),
            "nsys profile --trace=cuda,nvtx,osrt --cpuctxsw=process-tree",
            optional=True,
        ),
        DataKind(
            "ranges",
            r"(?:NVTX or record_function )?ranges",
            ("ranges WHERE origin IN ('nvtx', 'record_function', 'profiler_step')",),
            "torch.profiler.record_function, or NVTX under nsys",
        ),
        DataKind(
            "training steps",
            r"training steps",
            ("step_ranges",),
            "profiler.step() after each step, or NVTX ranges named step",
        ),
        DataKind("step metrics", r"(?:the collector's )?step metrics", ("step_metrics",), "collect run --model"),
        DataKind(
            "counters",
            r"counters",
            ("counters",),
            "nsys profile --gpu-metrics-devices=all, or collect run",
            optional=True,
        ),
        DataKind("GPU samples", r"GPU samples", ("gpu_samples",), "collect run on a GPU"),
        DataKind(
            "peaks of memory",
            r"(?:the collector's )?peaks of memory",
            ("step_metrics WHERE max_allocated_bytes > 0",),
            "collect run --model",
            optional=True,
        ),
        DataKind(
            "FLOP metrics",
            r"FLOP (?:and memory )?metrics of Nsight Compute(?: or nvprof)?",
            (f"ncu_metrics WHERE {_FLOPS}", f"metric_summary WHERE {_FLOPS}"),
            "collect run --profiler ncu --ncu-metrics flops",
        ),
        DataKind(
            "hardware metrics",
            r"metrics of Nsight Compute or nvprof|a recording of Nsight Compute|an Nsight Compute",
            ("ncu_metrics", "metric_summary"),
            "collect run --profiler ncu",
        ),
    )
}

_NAMES = tuple(DATA_KINDS)
_WORDS = re.compile("|".join(f"({h.pattern})" for h in DATA_KINDS.values()))
_ASIDE = re.compile(r"\([^()]*\)|;.*")
_UNREAD = re.compile(r"written by (?:(?!written by)[^;])*not read|categories that are not read: [^;]*")
_OF_GPUS = {"kernels", "communication kernels", "GPU work", "copies"}
_AND = re.compile(r"\band\b")
_OR = re.compile(r"\bor\b(?! more)")
_NAMED = re.compile(r"<(\d+)>")


class Needs(NamedTuple):
    """Names of DATA_KINDS that a query needs: one of each group."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all groups."""
        return tuple(name for group in self.groups for name in group)

    @property
    def words(self) -> str:
        """The names as text."""
        return " and ".join(" or ".join(group) for group in self.groups)

    def lacking(self, held: Collection[str]) -> Needs:
        """Return the groups that are missing, with what can be recorded of them; none if the query can be answered."""
        missing = (group for group in self.groups if not set(group) & set(held))
        return Needs(tuple(tuple(name for name in group if DATA_KINDS[name].recorded) for group in missing))


def needs_of(query: Query, params: Mapping[str, str]) -> Needs:
    """Return the DATA_KINDS in a query's @needs."""
    text = " ".join(_ASIDE.sub("", query.needs).split())
    groups: list[tuple[str, ...]] = []
    # Names may contain "and".
    for clause in _AND.split(_WORDS.sub(lambda m: f"<{m.lastindex}>", text)):
        names = [_NAMES[int(number) - 1] for number in _NAMED.findall(clause)]
        groups += [tuple(names)] if _OR.search(clause) else [(name,) for name in names]
    if params.get("window") == "step" and not any("training steps" in group for group in groups):
        groups.append(("training steps",))
    return Needs(tuple(dict.fromkeys(group for group in groups if group)))


def holdings(engine: Engine) -> dict[str, set[str]]:
    """Return names of DATA_KINDS by run id. Reads only the columns that show them."""
    held: dict[str, set[str]] = {run_id: set() for run_id in engine.run_ids}
    for holding in DATA_KINDS.values():
        union = " UNION ".join(f"SELECT run_id::VARCHAR FROM {source}" for source in holding.sources)
        tables = (source.partition(" ")[0] for source in holding.sources)
        for (run_id,) in engine.rows(union, defining(tables)):
            if run_id in held:
                held[run_id].add(holding.name)
    return held


def held(engine: Engine, name: str) -> bool:
    """Return whether any run of an engine holds what DATA_KINDS has under a name. Stops at the first row.

    Raises InputError if a file cannot be read.
    """
    for source in DATA_KINDS[name].sources:
        table = source.partition(" ")[0]
        if table not in TABLES or table in engine.tables:
            try:
                if engine.rows(f"SELECT 1 FROM {source} LIMIT 1", defining([table])):
                    return True
            except duckdb.Error as e:
                raise InputError(f"{table}: {sentence(e)}") from e
    return False


def lacks(engine: Engine, query: Query, params: Mapping[str, str], known: dict[str, bool]) -> bool:
    """Return whether the recordings lack what a query needs. Saves planning a query without rows.

    `known`: cache of `held` by name. Raises InputError as `held` does.
    """

    def there(name: str) -> bool:
        if name not in known:
            known[name] = held(engine, name)
        return known[name]

    return not all(any(map(there, group)) for group in needs_of(query, params).groups)


def combined_runs(
    engine: Engine, query: Query, params: Mapping[str, str], by: Sequence[str], columns: Iterable[str]
) -> int:
    """Return how many runs each row of an answer with these columns combines without showing it; 0 for one run.

    Only runs with tables that the query needs count: one of Nsight Compute has no times.
    """
    if not query.aggregates_runs(by, len(engine.run_ids), columns):
        return 0
    sources = [source for name in needs_of(query, params).names for source in DATA_KINDS[name].sources]
    tables = {source.partition(" ")[0] for source in sources} & set(TABLES)
    found = len(engine.runs_with(tables) if tables else engine.run_ids)
    return found if found > 1 else 0


def why_empty(engine: Engine, query: Query, params: Mapping[str, str], filter: str | None = None) -> str:
    """Return why an answer has no rows, as a phrase."""
    if not engine.run_ids:
        return NO_RUN
    if query.full and engine.selection.block == "gpu":
        return f"a GPU-only block has no {query.full} (--block full)"
    needs = needs_of(query, params)
    missing = needs.lacking([name for name in needs.names if held(engine, name)])
    if missing.groups:
        recorded = "; ".join(dict.fromkeys(DATA_KINDS[name].recorded for name in missing.names))
        if set(missing.names) & _OF_GPUS and not held(engine, "GPU work") and (unread := _unread(engine)):
            return f"no {missing.words} in what was read; {unread}"
        without = [f"no {g[0]}" if len(g) == 1 else f"neither {' nor '.join(g)}" for g in missing.groups]
        return f"the recording has {' and '.join(without)} (needs {recorded})"
    if filter and engine.query(query, dict(params), limit=1).rows():
        return f"--filter {filter!r} matches no rows"
    if "metric" in params and "hardware metrics" in needs.names:
        return f"no metric matches {params['metric']!r}; {_metrics(engine, params['metric'])}"
    given = [f"{name}={value}" for name, value in params.items()]
    if given:
        return f"nothing in the recording matches --param {' --param '.join(given)}"
    return f"query {query.name} needs {query.needs}" if query.needs else "the recording has no data for it"


def _unread(engine: Engine) -> str:
    """Return which data of the recordings is not read, as a phrase: its writer or its categories."""
    rows = engine.rows("SELECT warnings FROM runs WHERE contains(warnings, 'not read') ORDER BY run_id")
    found = (match for (text,) in rows for line in text.splitlines() if (match := _UNREAD.search(line)))
    return "; ".join(dict.fromkeys(match[0] for match in found))


def _metrics(engine: Engine, asked: str) -> str:
    """Return the number of metrics, and names similar to the requested one, as a phrase."""
    found = engine.rows("SELECT metric FROM ncu_metrics UNION SELECT metric FROM metric_summary ORDER BY metric")
    names = [name for (name,) in found]
    near = difflib.get_close_matches(asked, names, 5, 0.3) or names[:5]
    return f"the recording has {len(names)}, such as {', '.join(near)}"
