"""`analyze` runs without the parts of POSIX that Windows lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

AS_ON_WINDOWS = r"""
import sys
# What others wrote has been imported before the system becomes another: it chooses at import what it does.
import _posixsubprocess, asyncio, concurrent.futures.process, ctypes, csv, gzip, http.client, multiprocessing.spawn
import shutil, sqlite3, subprocess, tempfile, importlib.metadata
import duckdb, msgspec, pandas, portalocker, pyarrow, pyarrow.parquet, rich.console, rich.table, rich.progress, typer
import typer.testing, jinja2, vl_convert
import importlib, os, signal

os.supports_dir_fd = set()
importlib.reload(shutil)
sys.platform = "win32"
for module in ("fcntl", "resource", "pwd", "grp", "termios", "posix"):
    sys.modules[module] = None
LACKING = (
    "fork forkpty getuid geteuid getgid getegid getpgid setpgid setsid killpg sched_getaffinity sched_setaffinity "
    "posix_fadvise posix_fallocate posix_spawn fchmod fchown chown lchown mkfifo mknod statvfs pread pwrite nice "
    "getpriority sendfile openpty O_NOFOLLOW O_CLOEXEC O_DIRECTORY O_NONBLOCK O_SYNC O_DSYNC O_NOATIME uname getloadavg"
).split()
for name in LACKING:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "SIGPIPE", "SIGUSR1", "alarm", "pthread_sigmask"):
    delattr(signal, name)

import pkgutil
import analyze, schemas
imported = 0
for package in (schemas, analyze):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            imported += 1
assert imported > 60, imported

from analyze.cli.main import app
runner = typer.testing.CliRunner()
def run(*arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result.stdout
sample = "sample_traces/resnet18-1gpu"
answer = run("query", "kernel-share", sample, "--param", "group=family", "--format", "csv")
assert answer.splitlines()[1].startswith("convolution,308,"), answer

# A store in use is not removed, and one that is not, is.
from analyze.ingestion.cached_stores import entries, evict
reader = analyze.open(sample)
assert evict(0) == [] and len(entries()) == 1
assert reader.query("kernel-share", params={"group": "family"}).dicts()[0]["calls"] == 308
reader.stores[0].release()
assert len(evict(0)) == 1 and entries() == []
"""


def test_every_module_imports_ingests_and_answers_without_posix(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TRACEQUARRY_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
