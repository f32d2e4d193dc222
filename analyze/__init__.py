"""Trace analysis over raw profiler outputs: raw files in, Parquet in the middle, SQL out.

The Python API mirrors the command line, command by command and option by option::

    import analyze

    with analyze.open("runs/") as traces:                # stores, run folders or raw files; URLs, too
        traces.query("kernel-share", by=["model"])       # an answer, which a notebook shows as a table
        traces.query("gpu-busy").df(units=True)          # pandas; .pl() polars, .arrow() Arrow, .plot() the figure
        traces.queries.kernel_share(group="family")      # the same as query(...), completed by an editor
        traces.sql("SELECT count(*) FROM kernels")
        traces.pivot("nccl-share", rows=["model"], columns=["gpus"], value="kernel_time_pct", agg="sum")
        traces.advise(min_pct=5)
        traces.where("gpus = 2", profiler="nsys").advise()   # a part of the recordings, with the same methods
        traces.plot("roofline", "roofline.html").note
        traces.report("report.html")
        traces.serve()                                   # the same live, with questions and SQL
        traces.study("nvprof-imagenet", "study.html")
        traces.trace("trace.json.gz")
        traces.warnings                                  # what the raw files lost
        traces.query("kernel-share").notes               # what is left out of an answer

    analyze.compare(["a1/", "a2/", "a3/"], ["b1/", "b2/", "b3/"], fail_if="step_time > 2%").failures
    analyze.ingest("runs/", store="study/")
    analyze.ingest("runs/", store="s3://traces/study", shard="0/32")   # one of many machines; then
    analyze.commit("s3://traces/study"), analyze.compact("s3://traces/study")
    analyze.catalog(), analyze.tables(), analyze.studies(), analyze.cache()

Bad input is an `analyze.InputError`; a full disk, too little memory or a missing permission an `analyze.MachineError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analyze.errors import InputError, InternalError, MachineError
from analyze.traces import Paths, Traces, as_names, as_paths, as_texts

if TYPE_CHECKING:
    from analyze.comparison import Comparison
    from analyze.ingestion.cached_stores import Contents
    from analyze.ingestion.compact import Compacted
    from analyze.ingestion.ingest import IngestResult
    from analyze.ingestion.progress import Progress
    from analyze.query.modules import Module
    from analyze.query.query_declaration import Query
    from schemas.table_declaration import Table

__all__ = [
    "InputError",
    "InternalError",
    "MachineError",
    "Traces",
    "baselines",
    "cache",
    "catalog",
    "commit",
    "compact",
    "compare",
    "ingest",
    "open",
    "open_baseline",
    "remove_baseline",
    "set_baseline",
    "studies",
    "tables",
]


def open(
    *paths: Paths,
    queries: Paths | Sequence[Paths] = (),
    where: str | None = None,
    profiler: str | None = None,
    block: str | None = None,
    progress: Progress | None = None,
) -> Traces:
    """Open stores, run folders, folders of them, or raw files, at URLs too; raw ones go into the cache first.

    `queries`: further folders of query files. `where`, `profiler`, `block`: read only this part, see
    `Traces.where`. `progress`: is called as the ingest proceeds. Raises InputError for what cannot be read;
    `Traces.warnings` say what was lost of the rest.
    """
    return Traces(paths, queries, progress, where, profiler, block)


def ingest(
    *paths: Paths,
    store: Paths,
    jobs: int | None = None,
    as_one_run: bool = False,
    again: bool = False,
    shard: str | None = None,
    launcher: str | None = None,
    shards: int | None = None,
    launcher_options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Read run folders, folders of them, or raw trace files into a Parquet store, made if need be; all may be URLs.

    `jobs`: processes; by default one per CPU. `as_one_run`: the bare files are the ranks of one run; their names say
    which. `again`: read unchanged files, too. `shard`: as "3/8", only that share of the raw files (from 0 on), without
    a lock: `commit` makes what all shards wrote visible. `launcher`: slurm, local, dask or dask:ADDRESS does all
    `shards` (by default one for each file, 256 at most) and the commit, under `launcher_options` of submitit or dask.
    Returns the runs ingested and unchanged, rows, bytes, what the files were read as, and warnings. Raises InputError.
    """
    from analyze.ingestion.discover import check_place, discover
    from analyze.ingestion.ingest import ingest as run_ingest
    from analyze.ingestion.raw_files import given_paths
    from analyze.ingestion.shards import ingest_shard, parse_share
    from analyze.store.object_storage import store_at

    _checked_jobs(jobs)
    share = parse_share(shard) if shard is not None else None
    target = store_at(store)
    check_place(target)
    found = discover(given_paths(paths), target.raw_files(), as_one_run)
    if found.unpacked and (launcher is not None or share is not None):
        raise InputError("ingest: several processes cannot share an archive; unpack it, and name the folder")
    if launcher is not None:
        from analyze.ingestion.shard_launchers import launch

        if share is not None:
            raise InputError("ingest: either --shard or --launcher")
        result = launch(found, target, launcher, shards, as_texts(launcher_options), jobs, again)
    elif shards is not None or launcher_options:
        raise InputError("ingest: --shards and --launcher-option go with --launcher")
    elif share is None:
        result = run_ingest(found, target, jobs, progress, again)
    else:
        result = ingest_shard(found, target, share, jobs, progress, again)
    result.warnings[:0] = found.warnings
    return result


def slurm_script(
    *paths: Paths,
    store: Paths,
    jobs: int | None = None,
    as_one_run: bool = False,
    again: bool = False,
    shards: int | None = None,
    launcher_options: Mapping[str, object] | None = None,
) -> str:
    """The text of a script for `sbatch` that does what `ingest` does by launcher "slurm"; nothing is submitted."""
    from analyze.ingestion.discover import discover
    from analyze.ingestion.raw_files import given_paths
    from analyze.ingestion.shard_launchers import script

    given = given_paths(paths)
    flags = [*(["--jobs", str(jobs)] if jobs else []), *["--as-one-run"] * as_one_run, *["--again"] * again]
    found = discover(given, None, as_one_run)
    if found.unpacked:
        raise InputError("ingest: several processes cannot share an archive; unpack it, and name the folder")
    return script(given, Path(store), found, shards, as_texts(launcher_options), flags)


def commit(store: Paths, allow_missing: bool = False) -> IngestResult:
    """Make what `ingest` with `shard` wrote into a store visible, all of it or nothing.

    `allow_missing`: without the raw files of shards that are not there, as a warning and `runs.warnings` then say.
    Returns what an ingest of the whole does. Raises InputError for shards that are missing or of other inputs.
    """
    from analyze.ingestion.commit import commit as run_commit
    from analyze.store.object_storage import existing_store

    return run_commit(existing_store(store), allow_missing)


def compact(store: Paths, jobs: int | None = None) -> Compacted:
    """Derive tables of older versions again and merge small Parquet files, run by run; open readers keep the old files.

    Raw files are not needed. A table of a run then has files of 128 to 512 MB, or one, in which ranks and devices are
    sorted. `jobs`: processes; by default one per CPU. Returns which runs changed, and the number of files before and
    after. Raises InputError.
    """
    from analyze.ingestion.compact import compact as run_compact
    from analyze.store.object_storage import existing_store

    return run_compact(existing_store(store), _checked_jobs(jobs))


def compare(
    a: Paths | Sequence[Paths] | Traces,
    b: Paths | Sequence[Paths] | Traces | None = None,
    level: str = "measure",
    time: str = "gpu",
    where: str | None = None,
    where_a: str | None = None,
    where_b: str | None = None,
    per_step: bool | None = None,
    tolerance: float = 1.0,
    margin: float = 1.0,
    fail_if: str | Sequence[str] = (),
    naive: bool = False,
    despite: str | Sequence[str] = (),
    sort: str | None = None,
    limit: int | None = None,
    profiler: str | None = None,
    block: str | None = None,
    flame: Paths | None = None,
    comment: Paths | None = None,
    baseline: str | None = None,
    baselines: Paths | None = None,
) -> Comparison:
    """Compare runs: which measures and parts changed, whether the runs show it, and whether `fail_if` holds.

    `a`, `b`: the runs of each side; without `b`, `a` is a folder of `collect ab`. With `baseline`, A is the baseline of
    this name in the folder `baselines`, and `a` the runs of B. `where`: SQL over the columns of
    `runs` and `rank`, for both sides; `where_a`, `where_b` for one of them. `profiler`, `block`: as in `Traces.where`.
    The others: see `analyze.comparison.compare`. Returns the rows (`answer`: times in ns, shares in %), notes, and the
    conditions of `fail_if` that hold, or that the runs cannot decide. Raises InputError.
    """
    from analyze.comparison import compare as run_compare
    from analyze.notebook import Answer
    from analyze.query.engine import Engine
    from analyze.query.query_files import find
    from analyze.verdict.sides import LEVELS, open_sides, recorded_sides

    # Operators' stacks are of the full block.
    query = LEVELS[level].query if level in LEVELS else "breakdown"
    prefer = find(query).prefer if flame is None else None
    if baseline is not None:
        if b is not None:
            raise InputError("compare: with a baseline, only the runs to compare with it")
        with open_baseline(baseline, baselines) as kept:
            return compare(
                kept, a, level, time, where, where_a, where_b, per_step, tolerance, margin, fail_if, naive, despite,
                sort, limit, profiler, block, flame, comment,
            )  # fmt: skip
    if b is None:
        if isinstance(a, Traces) or len(folders := as_paths(a)) != 1:
            raise InputError("compare needs two sides: A B, or A... --with B..., or one folder of collect ab")
        a, b = recorded_sides(folders[0])

    with ExitStack() as stack:
        sides = [t if isinstance(t, Traces) else stack.enter_context(open(*as_paths(t))) for t in (a, b)]
        engines = (
            Engine(t.stores, replace(t.selection.narrowed(where, profiler, block).narrowed(of_side), prefer=prefer))
            for t, of_side in zip(sides, (where_a, where_b), strict=True)
        )
        result = run_compare(
            open_sides(*engines),
            level=level,
            time=time,
            per_step=per_step,
            tolerance=tolerance,
            margin=margin,
            fail_if=[fail_if] if isinstance(fail_if, str) else fail_if,
            naive=naive,
            despite=as_names(despite),
            sort=sort,
            limit=limit,
            flame=Path(flame) if flame is not None else None,
            comment=Path(comment) if comment is not None else None,
        )
        read_now = [t for t in sides if not any(t is given for given in (a, b))]
        warnings = tuple(w for t in read_now for w in t.warnings)
        return replace(result, answer=Answer(result.answer), warnings=warnings)


def set_baseline(name: str, *runs: Paths, folder: Paths | None = None) -> IngestResult:
    """Keep runs under a name, for `compare`; an older baseline of this name is replaced.

    `folder`: where baselines are kept, a folder or URL; by default $TRACEQUARRY_BASELINES, else .tracequarry/baselines.
    Raises InputError.
    """
    from analyze.baseline_folder import folder_of
    from analyze.baseline_folder import set_baseline as run_set

    return run_set(name, as_paths(runs), folder_of(folder))


def open_baseline(name: str, folder: Paths | None = None) -> Traces:
    """Open the runs of a baseline. Raises InputError if there is none."""
    from analyze.baseline_folder import folder_of
    from analyze.baseline_folder import open_baseline as find_baseline

    store = find_baseline(name, folder_of(folder))
    store.release()
    return open(str(store))


def baselines(folder: Paths | None = None) -> list[str]:
    """Return the names of the baselines. Raises InputError."""
    from analyze.baseline_folder import baseline_names, folder_of

    return baseline_names(folder_of(folder))


def remove_baseline(name: str, folder: Paths | None = None) -> None:
    """Remove a baseline. Raises InputError if there is none."""
    from analyze.baseline_folder import folder_of
    from analyze.baseline_folder import remove_baseline as run_remove

    run_remove(name, folder_of(folder))


def catalog(queries: Paths | Sequence[Paths] = ()) -> dict[str, Query]:
    """All queries by name (built-in, and of more folders) with their documentation, parameters and SQL."""
    from analyze.query.query_files import catalog as all_queries

    return all_queries(as_paths(queries))


def studies() -> dict[str, str]:
    """The studies that `Traces.study` knows by name, with their titles: in `./studies` and in the package."""
    from analyze.report import study_files

    return {name: study_files.load(path).title for name, path in study_files.by_name().items()}


def tables(name: str | None = None, modules: bool = False) -> dict[str, Table | Module]:
    """The tables and their columns by name; with `modules`, the SQL modules of queries and what they define instead.

    With `name`, that table or module alone, or the module of that view or macro without the others. Raises InputError
    if there is none.
    """
    from analyze.query.modules import built_in, home
    from analyze.stored_tables import TABLES

    if modules and name is not None:
        raise InputError("tables: either a name or --modules")
    if name is None:
        return dict(built_in()) if modules else dict(TABLES)
    if name in TABLES:
        return {name: TABLES[name]}
    if name in built_in():
        return {name: built_in()[name]}
    if name.lower() in home():
        module, definition = home()[name.lower()]
        return {module.name: replace(module, definitions=(definition,))}
    from difflib import get_close_matches

    near = get_close_matches(name, [*TABLES, *built_in(), *home()], 3)
    instead = f"did you mean {', '.join(dict.fromkeys(near))}?" if near else f"there are {', '.join(TABLES)}"
    raise InputError(f"no table, SQL module, view or macro has the name {name!r}; {instead}")


def cache(clear: bool = False, max_size: str | int | None = None) -> Contents:
    """List the cached stores of raw files that were opened directly.

    `clear`: first remove all that are not in use. `max_size`: first evict the least recently used ones down to this
    size, in bytes or a text such as "5GB". Raises InputError.
    """
    from analyze.ingestion.cached_stores import contents

    return contents(clear, max_size)


def _checked_jobs(jobs: int | None) -> int | None:
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: must be 1 at least")
    return jobs
