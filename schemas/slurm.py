"""Runs functions as tasks of a cluster with submitit, whose options it takes: timeout_min, mem_gb, slurm_partition.

submitit exchanges functions and results as pickle files, and a user who can write one runs code as its reader. So they
are in a new folder that only this user can enter, never in a store or an output folder, which others may have created.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

from schemas.isolation import isolated_children, python, set_variables

_SBATCH = {"timeout_min": "time", "cpus_per_task": "cpus-per-task", "mem_gb": "mem"}
_SETUP = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'
"""Since Slurm 22.05, srun does not inherit --cpus-per-task from its job."""
_FRAME = ("----", "submitit ")
"""Beginnings of the lines that submitit adds to a task's output."""
OUT_OF_TIME = "it reached its time limit; `--launcher-option timeout_min=...` sets a longer one"
_QUEUE_POLL_S = 30
"""Longest time between two calls of squeue."""
_FOLDER = "folder"
"""The option that names the folder for submitit's files."""


class TaskError(Exception):
    """Why a cluster rejects tasks, or how a task was lost; the message is one sentence."""


class Tasks:
    """Functions that run as tasks of arrays. `submit` starts them, `outcomes` waits for them. See `submitted`."""

    def __init__(self, cluster: str, executor: Any, variables: Mapping[str, str | None]) -> None:
        self.keeps_logs = False
        """Whether to retain the tasks' logs."""
        self._cluster = cluster
        self._executor = executor
        self._variables = variables
        self._started: list[Any] = []
        # On a network file system, a task's result may become visible after its end.
        self._poll_s, self._late_s = (1.0, 15.0) if cluster == "slurm" else (0.2, 0.0)

    def submit(self, calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]], **parameters: object) -> list[Any]:
        """Start each function with its arguments; return submitit's jobs in that order. Raises TaskError."""
        self._executor.update_parameters(**parameters)
        most = (largest_array() if self._cluster == "slurm" else None) or len(calls)
        found: list[Any] = []
        for begin in range(0, len(calls), most):
            with _submitit_errors(), self._executor.batch():
                found += [
                    self._executor.submit(_with_variables, self._variables, function, *arguments)
                    for function, arguments in calls[begin:][:most]
                ]
            self._started += found[begin:]
        return found

    def outcomes(self, jobs: Iterable[Any], stop: Callable[[], bool] = lambda: False) -> Iterator[tuple[Any, Any]]:
        """Yield jobs as they end, with their result, or a TaskError for a lost task, until `stop` returns True."""
        left, ended = list(jobs), dict[str, float]()
        while left and not stop():
            for job in list(left):
                if not job.paths.result_pickle.exists():
                    if not job.done():
                        continue
                    now = time.monotonic()
                    if now - ended.setdefault(job.job_id, now) < self._late_s:
                        continue
                left.remove(job)
                yield job, _outcome(job)
            if left:
                time.sleep(self._poll_s)

    def cancel(self) -> None:
        """Cancel the tasks that have not ended."""
        left = [job for job in self._started if not job.done()]
        if self._cluster == "slurm" and self._started:
            arrays = sorted({job.job_id.partition("_")[0] for job in self._started})
            # Slurm requeues the task of a lost node even if it had written its result.
            requeued = [] if left else ["--state=PENDING"]
            subprocess.run(["scancel", *requeued, *arrays], capture_output=True, check=False)
            return
        for job in left:
            job.cancel()


def _with_variables(variables: Mapping[str, str | None], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a task with the submitting process's environment, for the programs that it runs."""
    set_variables(variables)
    return function(*arguments)


@contextmanager
def submitted(cluster: str, name: str, options: Mapping[str, str]) -> Iterator[Tasks]:
    """Set up submitit for `cluster`: slurm, or local for processes on this machine. Cancels running tasks at the end.

    The option `folder` names a folder that all nodes see. Raises ImportError without submitit, and TaskError.
    """
    import submitit

    options = dict(options)
    logs = _private_folder(options.pop(_FOLDER, None))
    with isolated_children() as environment:
        try:
            with _submitit_errors():
                # A cluster may not pass on the variables of isolated_children().
                executor = submitit.AutoExecutor(folder=logs, cluster=cluster, slurm_python=shlex.join(python()))
                defaults = {"name": name, "timeout_min": 24 * 60, "slurm_setup": [_SETUP]}
                executor.update_parameters(**{**defaults, **typed(options)})
        except TaskError:
            shutil.rmtree(logs, ignore_errors=True)
            raise
        if cluster == "slurm":
            submitit.SlurmJob.watcher = _queue()
            if not {"timeout_min", "slurm_time"} & set(options):
                # Use the partition's limit: with a longer one a task would never start.
                executor._executor.update_parameters(time=None)
        found = Tasks(cluster, executor, environment)
        try:
            yield found
        finally:
            found.cancel()
    if not found.keeps_logs:
        shutil.rmtree(logs, ignore_errors=True)


def _private_folder(named: str | None) -> Path:
    """Create a folder in the named one, or in the user's cache, that nobody else can change. Raises TaskError."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracequarry" / "jobs"
    parent = Path(named).expanduser().absolute() if named else base
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        parent = parent.resolve()
        for folder in (parent, *parent.parents):
            if _others_may_change(folder.stat()):
                raise TaskError(
                    f"{folder}: other users can change it, and thus the code that tasks run; "
                    f"choose a folder of your own that all nodes see with --launcher-option {_FOLDER}=..."
                )
        return Path(tempfile.mkdtemp(dir=parent))  # of mode 0700
    except OSError as e:
        raise TaskError(f"{parent}: cannot be used for the files of tasks: {e.strerror}") from e


def _others_may_change(folder: os.stat_result) -> bool:
    """Whether another user can rename or replace files in a folder."""
    if sys.platform == "win32":
        return False  # Windows protects users' folders with access lists
    # In a container, root may have another id.
    if folder.st_uid not in (os.geteuid(), Path("/").stat().st_uid):
        return True
    if folder.st_mode & stat.S_ISVTX:
        return False
    by_group = folder.st_mode & stat.S_IWGRP and not _is_own_group(folder.st_gid)
    return bool(by_group or folder.st_mode & stat.S_IWOTH)


def _is_own_group(number: int) -> bool:
    """Whether a group consists of this user only, as many systems create one for each user."""
    if sys.platform == "win32":
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return user.pw_gid == number and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def _reason(message: str) -> str:
    """Describe how a task was lost, from submitit's message: a traceback or the end of the task's output."""
    if "in has_timed_out" in message or "timed-out" in message:
        return OUT_OF_TIME
    # Behind a traceback are only the paths of the logs.
    lines = [line.strip() for line in message.partition("You can check full logs")[0].splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith(_FRAME)), "no message")


def _outcome(job: Any) -> Any:
    """Return the result of a job that has ended, or a TaskError."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    job._results_timeout_s = 0  # do not wait once more
    try:
        return job.result()
    except (UncompletedJobError, FailedJobError) as e:
        log = job.paths.stderr
        if not log.exists():
            return TaskError(
                f"it could not write {log}; choose a folder that all nodes see with --launcher-option {_FOLDER}=..."
            )
        return TaskError(f"{_reason(str(e))} ({log})")


@contextmanager
def _submitit_errors() -> Iterator[None]:
    """Translate errors of submitit and Slurm to TaskError."""
    from submitit.core.utils import FailedJobError

    try:
        with redirect_stderr(io.StringIO()):  # submitit prints the same at length
            yield
    except (RuntimeError, ValueError, NameError, TypeError, AssertionError, OSError, FailedJobError) as e:
        raise TaskError(str(e).partition("\n")[0]) from e


def _queue() -> Any:
    """Return a watcher by which submitit regards jobs as ended that squeue does not list.

    Its own calls sacct, which does not work without Slurm accounting: a killed task would never end.
    """
    from submitit.core.core import InfoWatcher

    class Queue(InfoWatcher):
        def _make_command(self) -> list[str] | None:
            left = self._registered - self._finished
            return ["squeue", "--me", "--noheader", "--array", "--format=%i"] if left else None

        def read_info(self, string: bytes) -> dict[str, dict[str, str]]:
            listed = set(string.decode().split())
            left = self._registered - self._finished
            return {job: {"State": "RUNNING" if job in listed else "ENDED"} for job in left}

        def get_state(self, job_id: str, mode: str = "standard") -> str:
            state: str = self.get_info(job_id, mode).get("State", "UNKNOWN")
            return state

    return Queue(delay_s=_QUEUE_POLL_S)


@cache
def largest_array() -> int | None:
    """Return the maximum number of tasks of a Slurm array here, or None without Slurm."""
    try:
        config = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r"^MaxArraySize\s*=\s*([1-9]\d*)$", config, re.MULTILINE)
    return int(match[1]) if match else None


def typed(options: Mapping[str, str]) -> dict[str, str | int]:
    """Convert whole numbers among the options."""
    return {name: int(value) if value.isdecimal() else value for name, value in options.items()}


def sbatch_options(options: Mapping[str, str]) -> list[str]:
    """Convert the options to sbatch's: --mem=8G."""
    return [
        f"--{_SBATCH.get(name, name.removeprefix('slurm_').replace('_', '-'))}={value}{'G' if name == 'mem_gb' else ''}"
        for name, value in options.items()
        if name != _FOLDER
    ]
