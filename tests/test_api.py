"""The Python API mirrors the command line, and queries of the same runs share an engine."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import typer
from commands import run_cli
from support import SAMPLES, sql
from traces import event, kernel, write_trace

import analyze
from analyze.cli import main as cli
from analyze.errors import InputError, MachineError
from analyze.query.engine import Engine
from analyze.query.query_files import find
from analyze.trace.export import export

ONE, DDP2, DP2 = (SAMPLES / name for name in ("resnet18-1gpu", "resnet18-ddp2", "alexnet-dp2"))

# --- The mirror ---

Api = tuple[Callable[..., Any], ...]

MIRROR: dict[str, Api] = {
    # Without a name `analyze query` lists the catalog, which is also what --explain shows of one.
    "query": (analyze.Traces.query, analyze.catalog),
    "info": (analyze.Traces.info,),
    "sql": (analyze.Traces.sql,),
    "pivot": (analyze.Traces.pivot,),
    "advise": (analyze.Traces.advise,),
    "plot": (analyze.Traces.plot,),
    "report": (analyze.Traces.report,),
    "study": (analyze.Traces.study,),
    "trace": (analyze.Traces.trace,),
    "serve": (analyze.Traces.serve,),
    "compare": (analyze.compare,),
    "flame": (analyze.Traces.flame,),
    "mcp": (analyze.open,),
    "ingest": (analyze.ingest,),
    "commit": (analyze.commit,),
    "compact": (analyze.compact,),
    "tables": (analyze.tables,),
    "cache": (analyze.cache,),
    "baseline set": (analyze.set_baseline,),
    "baseline list": (analyze.baselines,),
    "baseline show": (analyze.open_baseline,),
    "baseline rm": (analyze.remove_baseline,),
}
"""What answers the questions of each command; the paths and folders of queries of `Traces` go to `open`."""

RENAMED = {"param": "params", "group": "params", "launcher_option": "launcher_options"}
"""Options that may be given several times are one mapping; --group is one of its keys."""

OUTPUT = {"unsure", "format", "output", "wide", "explain", "open_", "print_script", "print_url", "at"}
"""How a command shows what the API returns: as an `Answer`, `catalog()[name]`, or `slurm_script`."""

OF_THE_COMMAND_LINE = {"demo", "doctor"}
"""Commands about the installation; they open no recordings of the user."""

TAKES_OUTPUT = {"flame", "plot", "report", "study", "trace"}
"""Commands whose answer is a file."""


def commands() -> dict[str, set[str]]:
    """Every command of the typer app with its options and arguments, by the names of their parameters."""
    found: dict[str, set[str]] = {}

    def visit(command: Any, name: str) -> None:
        below = getattr(command, "commands", None)
        if below is None:
            found[name] = {p.name for p in command.params} - {"help"}
        for child, subcommand in (below or {}).items():
            visit(subcommand, f"{name} {child}".strip())

    visit(typer.main.get_command(cli.app), "")
    return found


def test_every_command_has_its_counterpart() -> None:
    assert set(commands()) - OF_THE_COMMAND_LINE == set(MIRROR)


@pytest.mark.parametrize("command", MIRROR)
def test_every_option_has_its_counterpart(command: str) -> None:
    options = {RENAMED.get(name, name) for name in commands()[command]}
    options -= OUTPUT - ({"output"} if command in TAKES_OUTPUT else set())
    asked = MIRROR[command]
    taken = set().union(*(inspect.signature(function).parameters for function in asked)) - {"self", "progress", "show"}
    if asked[0].__qualname__.startswith("Traces."):
        taken |= set(inspect.signature(analyze.open).parameters) - {"progress"}
    assert options <= taken and taken - options <= {"queries", "where", "profiler", "block"}
    assert command in ("info", "study", "mcp") or {"where", "profiler"} <= options or "where" not in taken


@pytest.mark.parametrize("command", MIRROR)
def test_defaults_are_the_same(command: str) -> None:
    """Of what both take: no option, an empty text and an empty list mean the same."""

    def plain(default: object) -> object:
        return None if default in ("", (), None) else default

    groups = [cli.app, *(g.typer_instance for g in cli.app.registered_groups if g.typer_instance)]
    name = command.split()[-1]
    known = [c for group in groups for c in group.registered_commands]
    [function] = [c.callback for c in known if c.callback and c.callback.__name__.rstrip("_") == name]
    of_command = {RENAMED.get(n, n): p.default for n, p in inspect.signature(function).parameters.items()}
    of_api = {n: p.default for n, p in inspect.signature(MIRROR[command][0]).parameters.items()}
    # `analyze trace --open` needs no file.
    both = (
        (set(of_command) & set(of_api))
        - {"output"}
        - {n for n, d in of_command.items() if d is inspect.Parameter.empty}
    )
    assert {n: plain(of_command[n]) for n in both if n != "name"} == {n: plain(of_api[n]) for n in both if n != "name"}


def test_everything_public_is_documented() -> None:
    public = [getattr(analyze, name) for name in analyze.__all__]
    public += [member for name, member in vars(analyze.Traces).items() if not name.startswith("_")]
    assert len(public) > 15 and [p for p in public if not inspect.getdoc(p)] == []


# --- What the command says on stderr ---


def said(*arguments: str | Path) -> list[str]:
    return [line.split(": ", 1)[1] for line in run_cli(*arguments).stderr.splitlines() if line.startswith("note: ")]


def test_notes() -> None:
    """Those of the command, and of these recordings: two passes; two ranks' runs; no collective on one GPU."""
    passes = analyze.open(DP2).query("nccl-share")
    assert passes.notes == [passes.note] == said("query", "nccl-share", DP2)
    assert passes.note.startswith("recorded with torch and nsys; using torch only")
    several = analyze.open(ONE, DDP2).query("kernel-share")
    assert several.notes == ["2 runs combined; --by run_id (or model, ...) separates them"]
    # A run of torch.profiler, and one of Nsight Compute, which has no times to add.
    assert analyze.open(SAMPLES / "alexnet-ncu").query("kernel-share").notes == []
    nothing = analyze.open(ONE).query("collectives")
    assert nothing.notes == [] and nothing.rows() == []
    assert nothing.notes == ["no rows: the recording has no communication kernels (needs more than one GPU)"]
    assert nothing.notes == said("query", "collectives", ONE)
    traces = analyze.open(DP2)
    assert traces.sql("SELECT 1").note == traces.advise().note == passes.note
    assert traces.pivot("nccl-share", ["model"], "kernel_time_pct", agg="sum").note == passes.note
    for statement in ("SELECT name FROM kernels", "SELECT count(*) FROM kernels"):
        assert said("sql", statement, ONE, "--where", "rank = 9") == ["no run matched --where, --profiler or --block"]
    assert said("sql", "SELECT name FROM kernels WHERE false", ONE) == []


def test_warnings_and_what_files_were_read_as(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("a", 0, 1), kernel("b", 1, 1)])
    path.write_text(path.read_text()[:-60])
    traces = analyze.open(path)
    assert traces.read_as == ["1 run, one process"]
    assert len(traces.warnings) == 1 and traces.warnings[0].startswith("t.json: the file is truncated")
    again = analyze.open(path)
    assert again.read_as == again.warnings == []
    other = write_trace(tmp_path / "u.json", [kernel("a", 0, 1), kernel("b", 1, 1)])
    other.write_text(other.read_text()[:-60])
    assert [w[:6] for w in analyze.compare(path, other).warnings] == ["u.json"]


def test_ingest(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("a", 0, 1), kernel("b", 1, 1)])
    store = tmp_path / "store"
    first = analyze.ingest(path, store=store, jobs=1)
    assert (len(first.ingested), first.unchanged, first.warnings) == (1, [], [])
    assert first.read_as == "1 run, one process" and first.bytes == path.stat().st_size
    assert analyze.ingest(path, store=store).unchanged == first.ingested
    assert analyze.ingest(path, store=store, again=True).ingested == first.ingested
    assert sql(store, "SELECT count(*) AS n FROM kernels") == [{"n": 2}]
    with pytest.raises(InputError, match="--jobs 0"):
        analyze.ingest(path, store=store, jobs=0)
    ranks = [write_trace(tmp_path / f"rank{r}.json", [kernel("a", 0, 1)]) for r in (0, 1)]
    assert len(analyze.ingest(*ranks, store=tmp_path / "one", as_one_run=True).ingested) == 1


def test_string_argument_is_one_name(tmp_path: Path) -> None:
    """A text is a sequence of its letters; and `Traces("/data")` would look for traces in all of /."""
    sample = SAMPLES / "alexnet-dp2"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "one.sql").write_text(
        "-- Is it one?\n-- @column one number  One.\nSELECT NULL AS run_group, 1 AS one"
    )
    with analyze.Traces(str(sample), str(tmp_path)) as one, analyze.open(sample, queries=[tmp_path]) as several:
        assert [s.folder for s in one.stores] == [s.folder for s in several.stores]
        assert one.query_folders == several.query_folders
        for given in ("model,gpus", "model, gpus"):
            assert (
                one.query("kernel-share", by=given)
                .arrow()
                .equals(several.query("kernel-share", by=["model", "gpus"]).arrow())
            )
        assert (
            one.query("kernel-share", select="name")
            .arrow()
            .equals(several.query("kernel-share", select=["name"]).arrow())
        )
        pivoted = one.pivot("kernel-share", rows="model", columns="gpus", value="total_ns", agg="sum").arrow()
        assert pivoted.equals(several.pivot("kernel-share", ["model"], "total_ns", ["gpus"], "sum").arrow())
        assert one.query("one").dicts() == [{"one": 1}]
    assert "one" in analyze.catalog(queries=tmp_path)
    assert analyze.compare(sample, sample, fail_if="kernel_time < 5%", naive=True).failures


def test_compare_returns_failed_conditions(tmp_path: Path) -> None:
    a, b = (write_trace(tmp_path / n / "t.json", [kernel("k", 0, dur)]) for n, dur in (("a", 1), ("b", 9)))
    result = analyze.compare(a, b, fail_if=["kernel_time > 5%", "kernel_time < 5%"], level="kernel", naive=True)
    assert [f.split(":")[0] for f in result.failures] == ["kernel_time > 5%"]
    # us are written into the trace: 9 - 1.
    assert result.answer.dicts()[0]["change_ns"] == 8000 and result.notes


def test_catalog_tables_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "mine" / "group" / "own-question.sql"
    own.parent.mkdir(parents=True)
    own.write_text("-- What?\n-- @column n count  Number.\nSELECT NULL AS run_group, 7 AS n\n")
    assert set(analyze.catalog([tmp_path / "mine"])) - set(analyze.catalog()) == {"own-question"}
    assert list(analyze.tables("kernels")) == ["kernels"] and len(analyze.tables()) > 10
    with pytest.raises(InputError, match="no table, SQL module, view or macro has the name 'colours'"):
        analyze.tables("colours")
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path / "cache"))
    analyze.open(write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])).close()
    there = analyze.cache()
    assert (len(there.entries), there.removed, there.folder) == (1, [], tmp_path / "cache")
    assert there.limit == 20_000_000_000  # 20GB: the default
    assert len(analyze.cache(max_size="1GB").entries) == 1
    assert len(analyze.cache(max_size=1).removed) == 1 and analyze.cache().entries == []


def test_trace_and_plot_return_what_they_wrote(tmp_path: Path) -> None:
    done = analyze.open(ONE).trace(tmp_path / "t.json.gz", counters=False)
    assert done.events > 0 and done.counters == 0 and (tmp_path / "t.json.gz").stat().st_size
    assert analyze.open(SAMPLES / "resnet18-ncu").plot("roofline", tmp_path / "r.svg").note == ""
    assert (tmp_path / "r.svg").stat().st_size
    left_out = analyze.open(DP2).plot("kernel-share", figure="bars x=calls y=name")
    assert left_out.note.startswith("recorded with torch and nsys; using torch only")


# --- Questions ---


def test_queries_read_the_passes_that_they_prefer() -> None:
    """Of a workload with two passes, `runs` reads both and `breakdown` one."""
    traces = analyze.open(DP2)
    assert [traces.query(name).arrow().num_rows for name in ("runs", "breakdown", "runs", "breakdown")] == [2, 2, 2, 2]
    assert set(traces.query("runs").arrow().column("profiler").to_pylist()) == {"torch", "nsys"}
    assert traces.query("breakdown").note and not traces.query("runs").note


def test_answers_can_be_open_together() -> None:
    traces = analyze.open(ONE)
    names = ("ops", "op-tree", "kernel-share", "ops")
    answers = [traces.query(name) for name in names]
    taken = [a.rows() for a in reversed(answers)][::-1]
    assert taken == [analyze.open(ONE).query(name).rows() for name in names]


def test_an_answer_outlives_its_traces() -> None:
    answer = analyze.open(ONE).query("kernel-share")
    gc.collect()
    assert answer.rows() == analyze.open(ONE).query("kernel-share").rows()


def test_closing() -> None:
    with analyze.open(ONE) as traces:
        part, answer = traces.where("rank = 0"), traces.query("kernel-share")
    for closed in (traces, part):
        with pytest.raises(ValueError, match="closed"):
            closed.query("kernel-share")
    assert answer.rows(), "its DuckDB is its own"
    traces.close()


def test_threads_can_share_traces() -> None:
    traces = analyze.open(ONE)
    expected = {name: traces.query(name).dicts() for name in ("ops", "kernel-share", "cuda-api", "gpu-busy")}
    wrong: list[object] = []

    def ask(name: str) -> None:
        try:
            for _ in range(4):
                if traces.query(name).dicts() != expected[name]:
                    wrong.append(name)
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=ask, args=(name,)) for name in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_queries_after_bad_input() -> None:
    engine = Engine(analyze.open(ONE).stores)
    expected = engine.query(find("op-tree")).rows()
    for wrong in ("SELECT colour FROM kernels", "SELEC", "SELECT error(name) FROM kernels"):
        with pytest.raises(InputError):
            engine.sql(wrong).rows()
    with pytest.raises(MachineError, match="No space left"):
        export(engine, Path("/dev/full"))
    assert engine.query(find("op-tree")).rows() == expected


def test_engine_works_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that could not be computed does not exist, and is computed by the next query."""
    expected = analyze.open(ONE).query("mfu").rows()
    monkeypatch.setenv("TRACEQUARRY_MEMORY", "500MB")
    engine = Engine(analyze.open(ONE).stores)
    with pytest.raises(duckdb.OutOfMemoryException):
        engine.rows("SELECT list(range) FROM range(200000000)")
    assert engine.query(find("mfu")).rows() == expected


def test_own_blocks_are_read_again(tmp_path: Path) -> None:
    """A module next to a user's query that hides a built-in one does so for that query alone, as it is now."""
    block = tmp_path / "mine" / "modules" / "gpu_timeline.sql"
    query = tmp_path / "mine" / "group" / "own.sql"
    for path in (block, query):
        path.parent.mkdir(parents=True)
    query.write_text(
        "-- What?\n-- @column n number  Number.\n-- @use gpu_timeline\nSELECT NULL AS run_group, n FROM gpu_tracks\n"
    )
    trace = write_trace(tmp_path / "t.json", [kernel("k", 0, 1), event("cpu_op", "f", 0, 1)])
    traces = analyze.open(trace, queries=[tmp_path / "mine"])
    assert traces.sql("SELECT count(*) AS n FROM gpu_tracks").dicts() == [{"n": 1}]
    for n in (7, 123):
        block.write_text(f"CREATE VIEW gpu_tracks AS SELECT {n} AS n;\n")
        assert traces.query("own").dicts() == [{"n": n}]
    assert traces.sql("SELECT count(*) AS n FROM gpu_tracks").dicts() == [{"n": 1}]
    assert find("own", [tmp_path / "mine"]).path == query
