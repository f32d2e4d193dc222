"""Fixtures for all tests."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import portalocker
import pytest

if sys.dont_write_bytecode:
    # All processes of the tests share compiled modules: where Python is told to write none, each of the hundreds would
    # compile what it imports, torch and torchvision for 6 s, analyze for 0.3 s.
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parent.parent / ".cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

# Under nohup, or in the background of a script, the tests ignore signals. Commands that they start would inherit that,
# but not a handler: they start with the default, and nohup still protects the tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one more than there are cores, for some tests wait: for a browser, Nsight Systems, a time-out. Each
    process takes 10 s of CPU for what all of them find, import and open once."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the test session's own, so that no test sees what an earlier version ingested; all its processes share
    it, so that a sample is ingested once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        # Settings of the user or of CI must not change answers and tables.
        for name in ("CACHE_SIZE", "MEMORY", "THREADS"):
            patch.delenv(f"TRACEQUARRY_{name}", raising=False)
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        patch.setenv("TRACEQUARRY_CACHE", str(folder))
        # All CPUs work at tests already: threads of one query would wait for those of others.
        patch.setenv("TRACEQUARRY_THREADS", "1")
        yield folder


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """An empty folder, as a user whom permissions bind: root can read everything."""
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp()).resolve()
    if root:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for parent, folders, _ in os.walk(folder):
            for name in folders:
                Path(parent, name).chmod(0o700)
        shutil.rmtree(folder)


Alone = Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="session")
def nsys_alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """One recording under Nsight Systems at a time, over all test processes: side by side, it has lost its agent."""
    turn = tmp_path_factory.getbasetemp().parent / "nsys.lock"

    @contextmanager
    def alone() -> Iterator[None]:
        with turn.open("w") as lock:
            portalocker.lock(lock, portalocker.LockFlags.EXCLUSIVE)
            yield

    return alone


@pytest.fixture
def one_nsys(nsys_alone: Alone) -> Iterator[None]:
    """`nsys_alone` for the whole test."""
    with nsys_alone():
        yield


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of a bucket of an S3 server of the tests' own."""
    s3fs = pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()  # of a server before
        s3fs.S3FileSystem().mkdirs("stores", exist_ok=True)
        yield "s3://stores"
    running.stop()
