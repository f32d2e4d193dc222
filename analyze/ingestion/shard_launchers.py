"""Launch the shards of an ingest: as a Slurm array with submitit, or on workers of dask.distributed.

Both only start `ingest_shard` and restart lost shards; the store says which shards are finished.
"""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from analyze.errors import InputError, MachineError
from analyze.ingestion.commit import commit, done_shards
from analyze.ingestion.grouping import spans
from analyze.ingestion.ingest import MOST_REPORTED, IngestResult
from analyze.ingestion.run_folders import RunInput
from analyze.ingestion.shards import MOST, Share, ingest_shard
from analyze.sources.remote import RawPath
from analyze.store.file_digest import Digests
from analyze.store.object_storage import store_at
from analyze.store.store import Store
from schemas.extras import missing
from schemas.isolation import isolated_children
from schemas.slurm import TaskError, largest_array, sbatch_options, submitted, typed
from schemas.urls import is_remote

MOST_SHARDS = 256
"""Default limit of shards: clusters often allow 1,000 tasks in an array."""
_ROUNDS = 3
"""Attempts for a shard that writes nothing."""
_LOOK_S = 5
"""Interval of polling Dask's scheduler for workers."""


class ShardOutcome(NamedTuple):
    """How a launched shard ended."""

    problem: str | None = None
    """Why its input cannot be read; None if it can."""
    lost: str | None = None
    """How its task was lost; None if it was not."""


Start = Callable[[list[Share]], Iterable[ShardOutcome]]
"""Runs shards."""


def launch(
    runs: Sequence[RunInput],
    store: Store,
    launcher: str,
    shards: int | None = None,
    options: Mapping[str, str] | None = None,
    jobs: int | None = None,
    again: bool = False,
) -> IngestResult:
    """Ingest runs in shards by `launcher`: slurm, local (what slurm does, on this machine) or dask[:ADDRESS].

    `options`: parameters of submitit (folder, timeout_min, slurm_partition ...), or of dask's LocalCluster. Raises
    InputError for an unknown launcher, for shards that were lost three times, and as an ingest does.
    """
    of = _number(runs, shards)
    store.make()
    # The digests are large, and only this process needs them.
    runs = [replace(run, digests=Digests()) for run in runs]
    if launcher.startswith("dask"):
        runs = [_absolute(run) for run in runs]  # a worker has a working directory of its own
    with _engine(launcher, runs, store, dict(options or {}), jobs, again) as start:
        outcomes: list[ShardOutcome] = []
        for left in reversed(range(_ROUNDS + 1)):
            missing = set(range(of)) - done_shards(runs, store, of, again)
            if not missing:
                break
            if not left:
                why = next((one.lost for one in outcomes if one.lost), f"do all machines see {store}?")
                raise InputError(
                    f"--launcher {launcher}: {len(missing)} of {of} shards ({spans(missing)}) were started {_ROUNDS} "
                    f"times and wrote nothing: {why}; the same command continues with them"
                )
            outcomes = list(start([Share(n, of) for n in sorted(missing)]))
            if problems := [one.problem for one in outcomes if one.problem]:
                raise InputError("; ".join(list(dict.fromkeys(problems))[:MOST_REPORTED]))
    return commit(store)


def _absolute(run: RunInput) -> RunInput:
    """Return a run with absolute paths."""
    return replace(
        run,
        files=[replace(file, path=file.path.absolute()) for file in run.files],
        manifests=[path.absolute() for path in run.manifests],
        named=frozenset(path.absolute() for path in run.named),
        looked={path.absolute(): looked for path, looked in run.looked.items()},
    )


def script(
    paths: Sequence[RawPath],
    store: Path,
    runs: Sequence[RunInput],
    shards: int | None,
    options: Mapping[str, str],
    flags: Sequence[str] = (),
) -> str:
    """Return a script for `sbatch` that does the same without submitit; it restarts no lost shards."""
    most = largest_array()
    of = _number(runs, shards, most)
    if most and of > most:
        raise InputError(f"--shards {of}: an array of this cluster may have {most} tasks (MaxArraySize)")
    lines = [f"--array=0-{of - 1}", "--job-name=analyze-ingest", *sbatch_options(options)]
    command = shlex.join(["analyze", "ingest", *map(str, paths), "--store", str(store_at(store)), *flags])
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {line}" for line in lines),
            f"{command} --shard $SLURM_ARRAY_TASK_ID/{of}",
            f"# When all are done: {shlex.join(['analyze', 'commit', str(store_at(store))])}",
        ]
    )


def _number(runs: Sequence[RunInput], shards: int | None, most: int | None = None) -> int:
    if shards is not None and not 1 <= shards <= MOST:
        raise InputError(f"--shards {shards}: must be from 1 to {MOST}")
    return shards or max(1, min(MOST_SHARDS, most or MOST_SHARDS, sum(len(run.files) for run in runs)))


def run_shard(runs: Sequence[RunInput], store: str, share: Share, jobs: int | None, again: bool) -> str | None:
    """Ingest one shard; return why the input cannot be read, or None. Raises MachineError."""
    try:
        ingest_shard(runs, store_at(store), share, jobs, again=again)
    except MachineError:
        raise
    except InputError as e:
        return f"{e} (on {socket.gethostname()})"
    return None


@contextmanager
def _engine(
    launcher: str, runs: Sequence[RunInput], store: Store, options: dict[str, str], jobs: int | None, again: bool
) -> Iterator[Start]:
    name, _, address = launcher.partition(":")
    place = str(store) if is_remote(str(store)) else str(store.folder.resolve())
    engine = {"slurm": _submitit, "local": _submitit, "dask": _dask}.get(name)
    if engine is None or (address and name != "dask"):
        raise InputError(f"--launcher {launcher}: must be slurm, local, dask or dask:ADDRESS")
    try:
        # Until the end: Dask restarts lost workers.
        with isolated_children(), engine(address or name, options, (list(runs), place), (jobs, again)) as start:
            yield start
    except TaskError as e:
        raise InputError(f"--launcher {name}: {e}") from e
    except ImportError as e:
        raise missing(f"--launcher {name}", "cluster", e) from e


@contextmanager
def _submitit(
    cluster: str, options: dict[str, str], before: tuple[list[RunInput], str], after: tuple[int | None, bool]
) -> Iterator[Start]:
    """Run each shard as a task of an array; a lost task is one whose shard is missing."""
    with submitted(cluster, "analyze-ingest", options) as started:

        def start(shares: list[Share]) -> Iterator[ShardOutcome]:
            tasks = started.submit([(run_shard, (*before, share, *after)) for share in shares])
            for _, outcome in started.outcomes(tasks):
                # A lost task is restarted if its shard is missing.
                yield (
                    ShardOutcome(lost=str(outcome)) if isinstance(outcome, TaskError) else ShardOutcome(problem=outcome)
                )

        yield start


@contextmanager
def _dask(
    address: str, options: dict[str, str], before: tuple[list[RunInput], str], after: tuple[int | None, bool]
) -> Iterator[Start]:
    """Run each shard as a task; Dask reassigns tasks of lost workers."""
    import cloudpickle
    import dask
    from dask.utils import parse_timedelta
    from distributed import Client, KilledWorker, LocalCluster, wait
    from distributed.client import CancelledError

    # How long Dask waits for a connection, 30 s by default, is also how long there may be no worker.
    patience_s = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    try:
        if address != "dask":
            client = Client(address, timeout=patience_s)
        else:
            # Other users of this machine can connect to the ports: TLS with keys of this run only, and no web pages.
            with dask.config.set({"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}):
                local = LocalCluster(
                    **{"threads_per_worker": 1, **typed(options)},
                    security=True,
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                )
            client = Client(local)
    except (OSError, ValueError, TypeError) as e:
        raise InputError(f"--launcher dask: {str(e).partition(chr(10))[0]}") from e

    def shard(work: bytes, share: bytes) -> Any:
        # Pickled in two steps: a worker without this package then fails in its task, with a message.
        import pickle

        function, runs, place, again = pickle.loads(work)
        # A worker process may not have children.
        return function(runs, place, pickle.loads(share), 0, again)

    def start(shares: list[Share]) -> Iterator[ShardOutcome]:
        try:
            client.wait_for_workers(1, timeout=patience_s)
            work = client.scatter(cloudpickle.dumps((run_shard, *before, after[1])), broadcast=True, hash=False)
        except TimeoutError as e:
            raise InputError(f"--launcher dask: {address} has no workers") from e
        except OSError as e:
            raise InputError(f"--launcher dask: {address}: {str(e).partition(chr(10))[0]}") from e
        left = {client.submit(shard, work, cloudpickle.dumps(share), pure=False) for share in shares}
        seen = time.monotonic()
        while left:
            with suppress(TimeoutError, CancelledError):
                wait(left, timeout=_LOOK_S, return_when="FIRST_COMPLETED")
            for task in [task for task in left if task.done()]:
                left.remove(task)
                try:
                    yield ShardOutcome(problem=task.result())
                except (KilledWorker, CancelledError, MachineError) as e:
                    yield ShardOutcome(lost=str(e))
                except ImportError as e:
                    raise InputError(f"--launcher dask: its workers need tracequarry, too: {e}") from e
            if client.scheduler_info()["workers"]:
                seen = time.monotonic()
            elif time.monotonic() - seen > patience_s:
                raise InputError(f"--launcher dask: {address} has lost all its workers")

    try:
        yield start
    finally:
        client.close()
        if address == "dask":
            local.close()
